package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAStopTellsNothingThatItCauses: a take that outlasts drain_wait ends with its daemon, as it would if that were killed. Its engine hears
// `restarted`, which its library says by itself, and not `peer_gone`: the channel ends here, and the other node is there.
func TestAStopTellsNothingThatItCauses(t *testing.T) {
	a, b := pair(t, func(c *config.Config) { c.Advanced.DrainWait = config.Duration(100 * time.Millisecond) })
	producer, consumer := a.join("prefill", 1), b.join("decode", 2)
	secret := token()
	if _, err := producer.Submit(&transfer.OfferOp{Key: []byte("k"), Token: secret, Consumers: 1, Lease: 60e9, Blocks: producer.all()}); err != nil {
		t.Fatal(err)
	}
	const slot = 3
	user, err := consumer.Submit(&transfer.TakeOp{Key: []byte("k"), Token: secret, Peer: "a", TakeID: 1, Parts: 1, LayerSlot: slot, Timeout: 60e9, Blocks: []layout.BlockList{{NTokens: 32, IDs: []uint32{0, 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the take waits for the rest of its offer", func() bool {
		return slices.ContainsFunc(get[[]admin.Transfer](b, "transfers"), func(x admin.Transfer) bool { return x.State == "moving" })
	})
	b.stop()
	if cause, err := consumer.Bye(); err != nil || cause.Reason != transfer.Unavailable {
		t.Errorf("the client hears %+v, %v", cause, err)
	}
	if !consumer.Rings.Granted(slot, user) {
		t.Error("its layer slot does not say that bytes were granted")
	}
	if c, err := consumer.Poll(); c != nil || err != nil {
		t.Errorf("the take is reported: %+v, %v", c, err)
	}
}
