package house

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
)

// TestProtocolExamples: the bytes in docs/protocol.md are those that the code writes, or that a golden test of it knows.
func TestProtocolExamples(t *testing.T) {
	sqe := ring.SQE{Op: ring.OpWithdraw, UserData: 7, TimeoutNS: 5e9, Target: 5}
	cqe := ring.CQE{UserData: 7, OpID: 12, Status: 1, Flags: ring.FlagMore, Epoch: 9}
	want := map[string]string{
		"ping":        hex.EncodeToString(ring.Append(nil, &ring.Ctl{Magic: ring.Magic, Type: ring.CtlPing, Seq: 7})),
		"submission":  hex.EncodeToString(ring.Append(nil, &sqe)),
		"completion":  hex.EncodeToString(ring.Append(nil, &cqe)),
		"ids":         hex.EncodeToString(layout.AppendIDs(nil, []uint32{0, 1, 2, layout.NoBlock, 5, 4, 1000, layout.NoBlock - 1, 0})),
		"need_layout": golden(t, "need_layout"),
		"link hello":  golden(t, "link hello"),
	}
	examples := regexp.MustCompile("(?s)```hex ([^\n]+)\n(.*?)```").FindAllStringSubmatch(read(t, "../../docs/protocol.md"), -1)
	if len(examples) != len(want)+1 {
		t.Errorf("%d examples, want %d", len(examples), len(want)+1)
	}
	for _, e := range examples {
		name, bytes := e[1], squeeze(e[2], " \n")
		if name == "frame" {
			// Its codec is not exported; the golden test of daemon/transport/tcp has the bytes as a literal.
			if !strings.Contains(squeeze(read(t, "../../daemon/transport/tcp/frame_test.go"), "\"+ \n\t"), bytes) {
				t.Errorf("frame: %s is not what daemon/transport/tcp/frame_test.go has", bytes)
			}
		} else if want[name] != bytes {
			t.Errorf("%s: %s, want %s", name, bytes, want[name])
		}
	}
}

// golden finds a message in the golden file of daemon/peer.
func golden(t *testing.T, name string) string {
	t.Helper()
	_, rest, found := strings.Cut("\n"+read(t, "../../daemon/peer/testdata/messages.txt"), "\n"+name+"\n")
	if !found {
		t.Fatalf("daemon/peer/testdata/messages.txt has no %q", name)
	}
	var b strings.Builder
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, " ") {
			break
		}
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}

func squeeze(s, drop string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(drop, r) {
			return -1
		}
		return r
	}, s)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
