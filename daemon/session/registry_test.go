package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestRegistryForgets: names that come and go for ever cost a bounded amount of memory, and those that came last are remembered.
func TestRegistryForgets(t *testing.T) {
	r := registry{engines: map[engineKey]*engine{}}
	join := func(name, instance string) (*session, error) {
		s := &session{who: identity{Engine: name, Instance: instance, Role: transfer.Scheduler}}
		return s, r.join(s, false)
	}
	visit := func(name, instance string) {
		t.Helper()
		s, err := join(name, instance)
		if err != nil {
			t.Fatal(err)
		}
		r.leave(s)
	}
	// replaced leaves the engine with a past: "old" was replaced by "new".
	replaced := func(name string) {
		t.Helper()
		if _, err := join(name, "old"); err != nil {
			t.Fatal(err)
		}
		visit(name, "new")
	}
	replaced("first")
	lives, err := join("first", "new")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxIdle {
		replaced(fmt.Sprint("engine ", i))
	}
	if n := len(r.engines); n > maxIdle+1 {
		t.Errorf("%d engines are remembered, want at most %d", n, maxIdle+1)
	}
	for _, name := range []string{"first", fmt.Sprint("engine ", 3*maxIdle-1)} {
		if _, err := join(name, "old"); err == nil {
			t.Errorf("instance old of %s was replaced and came back", name)
		}
	}
	r.leave(lives)
}

// TestRegistryKeepsWhoIsLive: that an engine of that name was lost before, and came back, is no reason to forget it while others come and go.
func TestRegistryKeepsWhoIsLive(t *testing.T) {
	r := registry{engines: map[engineKey]*engine{}}
	of := func(name, instance string) *session {
		return &session{who: identity{Engine: name, Instance: instance, Role: transfer.Scheduler}}
	}
	lost := []remembered{{Engine: "e", Instance: "a"}}
	for i := range maxIdle {
		lost = append(lost, remembered{Engine: fmt.Sprint("engine ", i), Instance: "a"})
	}
	r.expect(lost, nil)
	r.giveUp(lost[:1])
	back := of("e", "a")
	if err := r.join(back, true); err != nil {
		t.Fatal(err)
	}
	r.leave(back)
	if err := r.join(of("e", "b"), false); err != nil {
		t.Fatal(err)
	}
	r.giveUp(lost[1:])
	if e := r.engines[engineKey{"e", ""}]; e == nil || e.instance != "b" {
		t.Errorf("its live instance is forgotten: %+v", e)
	}
}

// TestRanksAreBounded: a client that is every rank of its instance, one after the other, makes no large file.
func TestRanksAreBounded(t *testing.T) {
	st := newState("")
	who := identity{Engine: "e", Instance: "i", Role: transfer.Worker}
	for rank := range uint32(maxWorld) {
		who.Rank = rank
		st.put(&session{id: 1, who: who}, 0, &[32]byte{}, nil)
	}
	text, _, err := st.encode()
	if f, e := parseState(text); err != nil || e != nil || len(f.Instances) != 1 || len(f.Instances[0].Ranks) > 2*transfer.MaxRanks {
		t.Errorf("%v, %v: %d bytes", err, e, len(text))
	}
}

// TestTheLargestStateIsRead: of as many sessions as there may be by default, each of an instance of its own with the longest names, all ranks
// and all the past that are kept.
func TestTheLargestStateIsRead(t *testing.T) {
	st := newState("")
	long := func(n int) string { return strings.Repeat("<", n) } // which JSON writes as six bytes
	who := identity{
		Engine: long(len(ring.Hello{}.Engine) - 1), Instance: long(len(ring.Hello{}.Instance) - 1), Owner: "uid 4294967295, cgroup /" + strings.Repeat("c", 4094),
		Role: transfer.Scheduler, Rank: transfer.NoRank,
	}
	st.put(&session{id: 1 << 63, who: who}, 0, &[32]byte{}, slices.Repeat([]string{who.Instance}, keptPast))
	for rank := range uint32(maxHad) {
		st.knows(instanceKey{who.Engine, who.Owner, who.Instance}, maxWorld-1-rank)
	}
	text, _, err := st.encode()
	if n := len(text) * (Limits{}).withDefaults().Sessions; err != nil || n > maxStateBytes {
		t.Errorf("%d bytes, at most %d are read: %v", n, maxStateBytes, err)
	}
}
