package session

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestWhoMakesRoom: of the user who has most, of its process that has most, the one that came first.
func TestWhoMakesRoom(t *testing.T) {
	const each = -1
	type group struct {
		uid     uint32
		pid, of int // of: connections, each of another process if pid is each
	}
	for name, c := range map[string]struct {
		before []group
		comes  sys.Cred
		out    int // which of all; -1: none
	}{
		"room":                       {[]group{{1, 10, 63}}, sys.Cred{UID: 1, PID: 10}, -1},
		"room for another user":      {[]group{{1, 10, 64}}, sys.Cred{UID: 2, PID: 11}, -1},
		"one process":                {[]group{{1, 10, 64}}, sys.Cred{UID: 1, PID: 10}, 0},
		"another process came first": {[]group{{1, 9, 1}, {1, 10, 63}}, sys.Cred{UID: 1, PID: 10}, 1},
		"another process comes":      {[]group{{1, 9, 1}, {1, 10, 63}}, sys.Cred{UID: 1, PID: 11}, 1},
		"a process for each":         {[]group{{1, each, 64}}, sys.Cred{UID: 1, PID: 1}, 0},
		"in other containers":        {[]group{{1, 0, 24}, {1, 10, 2}, {1, 0, 38}}, sys.Cred{UID: 1, PID: 11}, 24},
		"of two users":               {[]group{{2, 0, 40}, {1, 10, 1}, {1, 0, 1}, {1, 10, 38}, {1, each, 24}}, sys.Cred{UID: 1, PID: 10}, 40},
		"of two users, one process":  {[]group{{2, 10, 40}, {1, 10, 1}, {1, 9, 63}}, sys.Cred{UID: 1, PID: 9}, 41},
		"another user came first":    {[]group{{2, 20, 64}, {1, 10, 64}}, sys.Cred{UID: 1, PID: 10}, 64},
		"all are full":               {[]group{{5, 50, 1}, {1, 10, 63}, {2, 20, 64}, {3, 30, 64}, {4, 40, 64}}, sys.Cred{UID: 6, PID: 60}, 64},
	} {
		t.Run(name, func(t *testing.T) {
			var l lobby
			var all []*newcomer
			come := func(c sys.Cred) *newcomer {
				all = append(all, &newcomer{cred: c})
				return l.enter(all[len(all)-1])
			}
			for _, g := range c.before {
				for i := range g.of {
					pid := g.pid
					if pid == each {
						pid = 100 + i
					}
					if out := come(sys.Cred{UID: g.uid, PID: pid}); out != nil {
						t.Fatalf("%+v made room before", out.cred)
					}
				}
			}
			out := come(c.comes)
			if c.out < 0 {
				if out != nil {
					t.Fatalf("%+v made room", out.cred)
				}
				return
			}
			if out != all[c.out] || !out.out {
				t.Fatalf("%+v made room, want the one of %+v", out, all[c.out].cred)
			}
			if l.leave(out); len(l.list) != len(all)-1 { // as it does itself, later
				t.Errorf("%d are left of %d", len(l.list), len(all))
			}
		})
	}
}

// TestACrowdIsToldOnceAMinute: or whoever makes one fills the log.
func TestACrowdIsToldOnceAMinute(t *testing.T) {
	var l lobby
	now := time.Unix(1, 0)
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, false}, {59 * time.Second, false}, {time.Second, true}, {time.Second, false}} {
		now = now.Add(c.after)
		if got := l.news(now); got != c.want {
			t.Errorf("%d: told is %t", i, got)
		}
	}
}
