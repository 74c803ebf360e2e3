package roster

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestLivesForget: names that come and go for ever cost a bounded amount of memory, and those that came last are remembered.
func TestLivesForget(t *testing.T) {
	l, last := NewLives[int](), 0
	join := func(name, instance string) (session int, err error) {
		key := Engine{Name: name}
		if instance, _, err = l.Judge(key, instance, false); err != nil {
			return 0, err
		}
		last++
		l.Join(key, instance, last, false)
		return last, nil
	}
	visit := func(name, instance string) {
		t.Helper()
		s, err := join(name, instance)
		if err != nil {
			t.Fatal(err)
		}
		l.Leave(Engine{Name: name}, instance, s, false)
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
	if n := len(l.engines); n > maxIdle+1 {
		t.Errorf("%d engines are remembered, want at most %d", n, maxIdle+1)
	}
	for _, name := range []string{"first", fmt.Sprint("engine ", 3*maxIdle-1)} {
		if _, err := join(name, "old"); err == nil {
			t.Errorf("instance old of %s was replaced and came back", name)
		}
	}
	l.Leave(Engine{Name: "first"}, "new", lives, false)
}

// TestNobodyOfBeforeIsLeft: engines of which nobody came back have no live instance, and a bounded number of them is remembered.
func TestNobodyOfBeforeIsLeft(t *testing.T) {
	r, l := New(), NewLives[int]()
	f := &File{}
	for i := range 2 * maxIdle {
		f.Sessions = append(f.Sessions, Session{ID: transfer.SessionID(i + 1), Engine: fmt.Sprint(i), Instance: "i", Role: transfer.Worker})
	}
	r.Recall(f)
	l.Expect(r)
	if n := len(l.engines); n != len(f.Sessions) {
		t.Fatalf("%d engines are awaited, want %d", n, len(f.Sessions))
	}
	l.GiveUp(r.Away())
	for key, e := range l.engines {
		if e.instance != "" {
			t.Errorf("of %v, that did not come back, %q is live", key, e.instance)
		}
	}
	if n := len(l.engines); n > maxIdle {
		t.Errorf("%d engines are remembered, want at most %d", n, maxIdle)
	}
	if !r.GiveUp() || len(r.all)+len(r.past) != 0 || len(r.had) > maxLost {
		t.Errorf("%v did not come back and are remembered, and %d instances of theirs", r.all, len(r.had))
	}
}

// TestLivesKeepWhoIsLive: that an engine of that name was lost before, and came back, is no reason to forget it while others come and go.
func TestLivesKeepWhoIsLive(t *testing.T) {
	l := NewLives[int]()
	f := &File{Sessions: []Session{{ID: 1, Engine: "e", Instance: "a"}}}
	for i := range maxIdle {
		f.Sessions = append(f.Sessions, Session{ID: transfer.SessionID(i + 2), Engine: fmt.Sprint("engine ", i), Instance: "a"})
	}
	r := New()
	r.Recall(f)
	l.Expect(r)
	l.GiveUp(f.Sessions[:1])
	key := Engine{Name: "e"}
	l.Join(key, "a", 1, true)
	l.Leave(key, "a", 1, false)
	l.Join(key, "b", 2, false)
	l.GiveUp(f.Sessions[1:])
	if e := l.engines[key]; e == nil || e.instance != "b" {
		t.Errorf("its live instance is forgotten: %+v", e)
	}
}

// TestWhoComesAndGoesPushesNobodyOut: an engine that flaps for ever is one engine, and has none forgotten that came before.
func TestWhoComesAndGoesPushesNobodyOut(t *testing.T) {
	l, x, y := NewLives[int](), Engine{Name: "x"}, Engine{Name: "y"}
	for session, e := range []Engine{x, y} {
		l.Join(e, "old", session, false)
		l.Join(e, "new", 2+session, false)
		l.Leave(e, "new", 2+session, false)
	}
	for i := range maxIdle + 1 {
		l.Join(y, fmt.Sprint(i), 4+i, false)
		l.Leave(y, fmt.Sprint(i), 4+i, false)
	}
	if len(l.idle) != 2 {
		t.Errorf("%d engines are idle, want 2", len(l.idle))
	}
	if _, _, err := l.Judge(x, "old", false); err == nil {
		t.Error("an instance that was replaced may come back")
	}
}

// TestWhoNamesNoInstanceJoinsTheLiveOne: if there is one.
func TestWhoNamesNoInstanceJoinsTheLiveOne(t *testing.T) {
	l, key := NewLives[int](), Engine{Name: "e"}
	if name, mates, err := l.Judge(key, "", false); name != "" || len(mates) != 0 || err != nil {
		t.Errorf("nobody is there, and it is of instance %q with %v, %v", name, mates, err)
	}
	l.Join(key, "i", 1, false)
	if name, mates, err := l.Judge(key, "", false); name != "i" || len(mates) != 1 || err != nil {
		t.Errorf("instance i is there, and it is of %q with %v, %v", name, mates, err)
	}
}
