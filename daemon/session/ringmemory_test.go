package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestRingMemory: what HELLO asks for counts until the session is over. One owner may have half of it, and none has room where all is taken.
func TestRingMemory(t *testing.T) {
	largest := sessiontest.Options{Role: transfer.Endpoint, SQ: 1 << 16, CQ: 1 << 16, Records: 64 << 20, Layers: 1 << 16}
	g, err := ring.NewGeometry(ring.Sizes{SQ: largest.SQ, CQ: 2 * largest.CQ, Records: largest.Records, Layers: largest.Layers})
	noErr(t, err)
	if low, top, n := uint64(210<<20), uint64(211<<20), g.Memory(); n < low || n > top || n < uint64(g.CBytes+g.DBytes) { // packaging/kvpiped.toml says 211 MiB
		t.Errorf("the largest rings count as %d bytes, want %d to %d", n, low, top)
	}
	usual, err := ring.NewGeometry(ring.Sizes{SQ: 1024, CQ: 2 * 4096, Records: 8 << 20, Layers: 1024})
	noErr(t, err)
	if top, n := uint64(17<<20), usual.Memory(); n > top || 1024*top > 18<<30 { // that file and docs/operating.md say 17 MiB, and that 18 GiB are room for all
		t.Errorf("usual rings count as %d bytes, want at most %d", n, top)
	}
	n := start(t, func(c *session.Config) { c.Limits.RingMemory = 4 * g.Memory() })
	first := n.dial(largest)
	n.dial(largest)
	if used := n.Usage().Rings; used != 2*g.Memory() {
		t.Errorf("two sessions count as %d bytes, want %d", used, 2*g.Memory())
	}
	_, err = sessiontest.Dial(n.path, sessiontest.Options{Engine: "small", Role: transfer.Endpoint, SQ: 1, CQ: 8, Records: 1 << 16, Layers: 1})
	says(t, err, transfer.Quota, "half of limits.ring_memory")
	noErr(t, first.Close())
	n.dial(largest)

	limits := session.Limits{RingMemory: 8 * g.Memory()}
	n.SetLimits(limits)
	n.dial(largest)
}

// TestRingMemoryOfAll: where others have all of it there is none for an owner who has little.
func TestRingMemoryOfAll(t *testing.T) {
	r := session.NewRingMemory()
	for _, owner := range []string{"a", "b"} {
		noErr(t, r.Take(owner, 50, 100))
	}
	says(t, &sessiontest.Error{Cause: session.CauseOf(r.Take("c", 1, 100))}, transfer.Quota, "the 100 of all sessions")
	r.GiveBack("a", 50)
	noErr(t, r.Take("c", 50, 100))
	r.GiveBack("b", 50)
	r.GiveBack("c", 50)
	if n := r.Used(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestRingMemoryOfAUser: a user that is many owners, as it can make cgroups, leaves others a quarter.
func TestRingMemoryOfAUser(t *testing.T) {
	r := session.NewRingMemory()
	for range 2 { // what is given back does not count
		noErr(t, r.Take("uid 7, cgroup /a", 50, 100))
		noErr(t, r.Take("uid 7, cgroup /b", 24, 100))
		for _, owner := range []string{"uid 7, cgroup /b", "uid 7, cgroup /c, d", "uid 7, not visible"} {
			says(t, &sessiontest.Error{Cause: session.CauseOf(r.Take(owner, 2, 100))}, transfer.Quota, "the 74 of this user in all its cgroups are more than 75, three quarters of limits.ring_memory = 100")
		}
		noErr(t, r.Take("uid 77, cgroup /a", 25, 100))
		r.GiveBack("uid 7, cgroup /a", 50)
		r.GiveBack("uid 7, cgroup /b", 24)
		r.GiveBack("uid 77, cgroup /a", 25)
	}
}
