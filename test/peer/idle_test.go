package peer

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// A take that waits for the rest of what it takes says nothing, nor does the offer's node: their channel is not closed for that, and another
// one, which nobody uses, is.
func TestAHandOverThatWaitsKeepsItsChannel(t *testing.T) {
	c := cluster.New(t)
	b, idle := c.Node("b").Start(), c.Node("idle").Start()
	a := c.Node("a", b, idle)
	a.Idle = "10ms"
	a.Configure("")
	a.Start()
	consumer, producer := join(a, "decode"), join(b, "prefill")
	here, there := join(a, "here"), join(idle, "there")
	for i := range producer.mem {
		producer.mem[i] = pattern("k", i)
	}
	offer, err := producer.Submit(&transfer.OfferOp{Key: []byte("k"), Token: token, Consumers: 1, Lease: 60e9, Blocks: list(1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = consumer.Submit(&transfer.TakeOp{
		Key: []byte("k"), Token: token, Peer: "b", TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Time(cluster.Patience), Blocks: list(2, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "the first block has moved", func() bool {
		return consumer.mem[0] == pattern("k", 0) && consumer.mem[blockBytes-1] == pattern("k", blockBytes-1)
	})
	epoch := a.Peer("b").Epoch
	for range 3 { // each takes until a heartbeat at which the other channel, which began before, is looked at as well
		handOver(there, here, "idle", 1)
		cluster.Eventually(t, "a closes the idle channel", func() bool { return a.Peer("idle").State != "up" })
	}
	if p := a.Peer("b"); p.Epoch != epoch || p.State != "up" {
		t.Fatalf("the channel in use was closed: %+v, epoch before %d", p, epoch)
	}
	rest := list(2, 1)
	rest[0].FirstToken, rest[0].NTokens, rest[0].IDs = blockTokens, blockTokens, rest[0].IDs[1:]
	if _, err := producer.Submit(&transfer.ExtendOp{Target: offer, Sealed: true, Blocks: rest}); err != nil {
		t.Fatal(err)
	}
	consumer.collect(1)
	producer.collect(1)
}
