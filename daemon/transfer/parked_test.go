package transfer_test

import (
	"slices"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// queue is a machine with an offer "k" to one engine, which has begun take 1, and takes of others that wait for its place.
func queue(tb testing.TB, others int) *asker {
	a := &asker{tb: tb, now: 1, m: transfer.New(transfer.Config{Node: "a", Random: func() uint64 { return 1 }, MaxParked: others + 1})}
	a.step(transfer.PeerUp{Node: "b", Epoch: 1})
	a.offers(1)
	l := oneRank(tb)
	a.asks(layoutMsg(l))
	for x := range transfer.XferID(others + 1) {
		msg := takeOf(x+1, l)
		msg.Instance = string(rune(x))
		a.asks(msg)
	}
	return a
}

// TestTakesThatWaitBeginInTheirOrder: however many of them go away meanwhile, and wherever they stand.
func TestTakesThatWaitBeginInTheirOrder(t *testing.T) {
	a := queue(t, 9)
	for _, x := range []transfer.XferID{2, 6, 10, 5} {
		a.ends(x)
	}
	var begun []transfer.XferID
	for x := transfer.XferID(1); x <= 10; x++ {
		a.begun = nil
		a.asks(&transfer.MsgEnd{Xfer: x, Status: transfer.WasCancelled})
		begun = append(begun, a.begun...)
	}
	if want := []transfer.XferID{3, 4, 7, 8, 9}; !slices.Equal(begun, want) {
		t.Errorf("takes began in the order %v, want %v", begun, want)
	}
}

// BenchmarkPlace: an offer's place becomes free, and 4095 wait for it; the first of them gives it up again.
func BenchmarkPlace(b *testing.B) {
	const others = 4096
	a, x := queue(b, others), transfer.XferID(0)
	for b.Loop() {
		if x++; x == others {
			a, x = queue(b, others), 1
		}
		a.ends(x)
	}
}
