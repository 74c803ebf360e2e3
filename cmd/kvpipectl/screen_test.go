package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
)

// TestScreen: names are shown, and command no terminal; programs get them as they are.
func TestScreen(t *testing.T) {
	const text = "rail\x1b[31m0\u009b2J\x7f\tété\r\n"
	for raw, want := range map[bool]string{false: "rail?[31m0?2J?\tété?\n", true: text} {
		var out strings.Builder
		if n, err := (screen{&out, &raw}).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("raw %v: %q, %d, %v, want %q", raw, out.String(), n, err, want)
		}
	}
}

// TestRowsAreWhatTheyAre: whatever a peer calls itself, or says, makes no row and no column.
func TestRowsAreWhatTheyAre(t *testing.T) {
	var out strings.Builder
	tab := newTable(screen{&out, new(bool)}, "NODE", "ADDRESS")
	tab.row("a", "10.0.0.1:7650\nb\t10.0.0.2:7650\x1b[2J")
	tab.flush()
	if got, want := out.String(), "NODE  ADDRESS\na     10.0.0.1:7650 b 10.0.0.2:7650?[2J\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestComplaints: an error commands the terminal no more than a table does.
func TestComplaints(t *testing.T) {
	var out strings.Builder
	complain(&out, errors.New("peer \x1b[2J left"))
	if got, want := out.String(), "kvpipectl: peer ?[2J left\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputThatIsLost is an error of the command: whoever reads the file would take it for what there is.
func TestOutputThatIsLost(t *testing.T) {
	socket := admintest.Serve(t, admintest.Example())
	for _, args := range []string{"status", "status --json", "sessions", "transfers --watch", "bench decode-1", "drain", "version", "--help", "status --help"} {
		if err := execute(t.Context(), full{}, append([]string{"--admin", socket}, strings.Fields(args)...)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
