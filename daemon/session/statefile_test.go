package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// TestRanksAreBounded: a client that is every rank of its instance, one after the other, makes no large file.
func TestRanksAreBounded(t *testing.T) {
	st := newState("")
	who := identity{Engine: "e", Instance: "i", Role: transfer.Worker}
	for rank := range uint32(maxWorld) {
		who.Rank = rank
		st.put(&session{id: 1, who: who}, roster.Return{}, nil)
	}
	text, _, err := st.encode()
	if f, e := parseState(text); err != nil || e != nil || len(f.Instances) != 1 || len(f.Instances[0].Ranks) > 2*transfer.MaxRanks {
		t.Errorf("%v, %v: %d bytes", err, e, len(text))
	}
}

// TestTheLargestStateIsRead: of as many sessions as there may be by default, each of an instance of its own with the longest names, that came
// back, with all ranks and all the past that are kept.
func TestTheLargestStateIsRead(t *testing.T) {
	st := newState("")
	long := func(n int) string { return strings.Repeat("<", n) } // which JSON writes as six bytes
	who := identity{
		Engine: long(len(ring.Hello{}.Engine) - 1), Instance: long(len(ring.Hello{}.Instance) - 1), Owner: "uid 4294967295, cgroup /" + long(4094), // users may name cgroups
		Role: transfer.Scheduler, Rank: transfer.NoRank,
	}
	const id = 1 << 63
	var first session
	first.id, first.who = id, who
	st.put(&first, roster.Return{}, nil)
	again := roster.Return{ID: id, Proof: proofOf(&first.secret)}
	if k := st.put(&session{id: id + 1, who: who}, again, slices.Repeat([]string{who.Instance}, roster.KeptPast)); !k.Resumed {
		t.Fatal("it did not come back")
	}
	worker := who
	worker.Role = transfer.Worker
	for rank := range uint32(2 * transfer.MaxRanks) {
		worker.Rank = maxWorld - 1 - rank
		s := session{id: 1, who: worker}
		st.put(&s, roster.Return{}, slices.Repeat([]string{who.Instance}, roster.KeptPast))
		st.drop(s.id)
	}
	text, _, err := st.encode()
	if n := len(text) * (Limits{}).withDefaults().Sessions; err != nil || n > maxStateBytes {
		t.Errorf("%d bytes, at most %d are read: %v", n, maxStateBytes, err)
	}
}

// TestAStateThatCannotBeWritten leaves nothing that says otherwise: a file of the daemon before goes, one of this daemon stays.
func TestAStateThatCannotBeWritten(t *testing.T) {
	st := newState(filepath.Join(t.TempDir(), "state"))
	who := identity{Engine: "e", Instance: "i", Role: transfer.Worker}
	next := st.path + ".next"
	noErr := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	save := func(id transfer.SessionID) error {
		st.put(&session{id: id, who: who}, roster.Return{}, nil)
		return st.save()
	}
	has := func(want int) {
		t.Helper()
		f, err := readState(st.path)
		if want == 0 && errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil || len(f.Sessions) != want {
			t.Errorf("%+v, %v: want %d sessions", f, err, want)
		}
	}
	noErr(os.WriteFile(st.path, []byte(`{"version":1}`), 0o600))
	noErr(os.MkdirAll(filepath.Join(next, "in the way"), 0o700))
	if err := save(1); err == nil {
		t.Fatal("it was written")
	}
	has(0)
	noErr(os.RemoveAll(next))
	noErr(save(2))
	has(2)
	noErr(os.MkdirAll(filepath.Join(next, "in the way"), 0o700))
	if err := save(3); err == nil {
		t.Fatal("it was written")
	}
	has(2)
	noErr(os.RemoveAll(next))
	noErr(save(4))
	has(4)
}
