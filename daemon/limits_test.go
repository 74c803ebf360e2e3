package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// hasLimits checks what the admin interface says of an engine's session: "used of limit" by key.
func (n *node) hasLimits(engine string, want map[string]string) {
	n.t.Helper()
	all := map[string]string{}
	for _, s := range get[[]admin.Session](n, "sessions") {
		if s.Engine == engine {
			for _, l := range s.Limits {
				all[l.Key] = fmt.Sprintf("%d of %d", l.Used, l.Limit)
			}
		}
	}
	for key, v := range want {
		if all[key] != v {
			n.t.Errorf("%s of engine %s: %q, want %q", key, engine, all[key], v)
		}
	}
}

// TestQuotas: every limit of a session is refused with its name, its value and what is used; the admin interface and the metrics show
// how near it is; and a reload changes it.
func TestQuotas(t *testing.T) {
	const pinned = 4 * blockBytes
	n := start(t, "a", t.TempDir(), func(c *config.Config) {
		c.Limits.Offers, c.Limits.Inflight, c.Limits.BlockIDs, c.Limits.SessionPinned = 1, 3, 5, pinned
	})
	e := n.join("e", 4)
	offer := func(key string) *transfer.OfferOp {
		return &transfer.OfferOp{Key: []byte(key), Token: token(), Consumers: 1, Sealed: true, Lease: 60e9, Blocks: e.all()}
	}
	refused := func(what string, c *sessiontest.Completion, says string) {
		t.Helper()
		if c.Reason != uint16(transfer.Quota) || !strings.Contains(c.Text, says) {
			t.Errorf("%s: %+v, want a refusal that says %q", what, c.Cause(), says)
		}
	}
	submit := func(op transfer.Op) {
		t.Helper()
		if _, err := e.Submit(op); err != nil {
			t.Fatal(err)
		}
	}
	early := func(i int) *transfer.TakeOp {
		return &transfer.TakeOp{Key: fmt.Appendf(nil, "never %d", i), Token: token(), TakeID: uint64(i), Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 60e9}
	}
	submit(offer("one"))
	large := early(4)
	large.Blocks = e.all()
	refused("block ids beyond the limit", e.do(large), "this session has 4 block ids in what it offers, takes, puts and gets, with these 4, the limit is limits.block_ids = 5")
	one := offer("two")
	one.Blocks = []layout.BlockList{{NTokens: 1, IDs: []uint32{0}}}
	refused("a second offer", e.do(one), "this session has 1 offers, the limit is limits.offers = 1")
	if _, _, err := e.Alloc(1); sessiontest.Reason(err) != transfer.Quota || !strings.Contains(err.Error(), "limits.session_pinned = 16384") {
		t.Errorf("one byte more: %v", err)
	}
	submit(early(1))
	submit(early(2))
	refused("a fourth operation", e.do(early(3)), "this session has 3 operations that are not released, the limit is 3 (limits.inflight")

	want := map[string]string{"limits.offers": "1 of 1", "limits.inflight": "3 of 3", "limits.block_ids": "4 of 5", "limits.session_pinned": "16384 of 16384", "cq_entries": "9 of 4096"}
	n.hasLimits("e", want)
	m, err := view{n.Daemon}.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, l := range m.Limits {
		shown[l.Key] = fmt.Sprintf("%d of %d", l.Used, l.Limit)
	}
	for key, v := range want {
		if shown[key] != v {
			t.Errorf("metrics show %q as %q, want %q", key, shown[key], v)
		}
	}
	for _, key := range []string{"limits.sessions", "limits.sessions_per_uid", "limits.ring_memory", "limits.total_pinned"} {
		if shown[key] == "" {
			t.Errorf("metrics do not show %q: %v", key, shown)
		}
	}

	next := n.cfg
	next.Limits.Offers, next.Limits.Inflight, next.Limits.BlockIDs, next.Limits.SessionPinned = 2, 8, 16, 2*pinned
	n.Reload(loaded(next))
	f := n.join("f", 8)
	for _, key := range []string{"three", "four"} {
		o := offer(key)
		o.Blocks = f.all()
		if _, err := f.Submit(o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the offers are there", func() bool { return len(n.offers()) == 3 })
	n.hasLimits("f", map[string]string{"limits.offers": "2 of 2", "limits.inflight": "2 of 8", "limits.block_ids": "16 of 16", "limits.session_pinned": "32768 of 32768"})
}

// TestDeafClient: one that submits all it can and never collects a completion is bounded by its own ring. Others hand over as before,
// slice for slice.
func TestDeafClient(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	producer, consumer := n.join("prefill", 1024), n.join("decode", 1024)
	slices := func() uint64 { return n.carriers.local.Stats().Slices }
	const each = 4 // slices of a MiB; a worker counts one after its report
	handOver(producer, consumer, "a", "quiet", "", token())
	eventually(t, "the slices of a hand-over beside nobody", func() bool { return slices() == each })

	deaf, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: "deaf", SQ: 64, CQ: 64, TPWorld: 1, PPWorld: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(deaf.Kill)
	full := func() (submitted int) {
		for {
			if _, err := deaf.Submit(&transfer.DropOp{Key: []byte("k"), Token: token(), Timeout: 60e9}); err != nil {
				return submitted
			}
			submitted++
		}
	}
	all := 0
	eventually(t, "the daemon takes no more of the deaf one's submissions", func() bool {
		all += full()
		for _, s := range get[[]admin.Session](n, "sessions") {
			if s.Engine == "deaf" {
				return s.Uncollected+s.Operations >= 64 && int(s.Submitted)+64 == all
			}
		}
		return false
	})
	for i := range 10 {
		handOver(producer, consumer, "a", fmt.Sprint("beside ", i), "", token())
	}
	eventually(t, "the slices of ten more, and of nobody else", func() bool { return slices() == 11*each })
	for _, s := range get[[]admin.Session](n, "sessions") {
		if s.Engine == "deaf" && (s.Uncollected > 128 || s.Operations > 64) {
			t.Errorf("the deaf client has %d completions and %d operations", s.Uncollected, s.Operations)
		}
	}
}
