package peer

import (
	"slices"
	"sync"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// waiting returns how many bytes wait for the wire.
func (n *node) waiting(peer string) int {
	ch := n.channelOf(peer)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return len(ch.out)
}

func TestQueuedMessagesAreSentByFlush(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", patient), c.node("b", patient)
	a.knows(b)
	epoch := met(a, b)
	for i := range uint64(3) {
		before := a.waiting("b")
		a.Queue("b", epoch, &transfer.MsgGo{Xfer: transfer.XferID(i + 1)}, false)
		if a.waiting("b") <= before {
			t.Fatalf("message %d did not wait for the others", i+1)
		}
	}
	a.Queue("b", epoch+1, &transfer.MsgGo{Xfer: 9}, false) // of another epoch, and so nobody's
	a.Flush()
	for i := range uint64(3) {
		wait(b, func(e transfer.PeerMsg) bool { m, ok := e.Msg.(*transfer.MsgGo); return ok && uint64(m.Xfer) == i+1 })
	}
	a.Send("b", epoch, &transfer.MsgGo{Xfer: 4}) // the last word of the other epoch would have come before
	if e := wait[transfer.PeerMsg](b, nil); e.Msg.(*transfer.MsgGo).Xfer != 4 {
		t.Errorf("%+v came", e.Msg)
	}
	a.Flush() // of nothing
}

// TestWhatBecameMuchIsNotWrittenByItsSender: what is queued between the look at it and the write counts, too, or the write could block.
func TestWhatBecameMuchIsNotWrittenByItsSender(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", patient), c.node("b", patient)
	a.knows(b)
	met(a, b)
	ch := a.channelOf("b")
	flush := func(bytes int) (done bool, left int) {
		ch.wmu.Lock() // nobody writes meanwhile
		defer ch.wmu.Unlock()
		ch.enqueue(&transfer.MsgGrant{HasInline: true, Inline: make([]byte, bytes)}, false)
		done, err := ch.flushSmall()
		if err != nil {
			t.Error(err)
		}
		return done, a.waiting("b")
	}
	if done, left := flush(1 << 10); !done || left != 0 {
		t.Errorf("little: written %v, %d bytes left", done, left)
	}
	if done, left := flush(maxAtOnce); done || left <= maxAtOnce {
		t.Errorf("much: written %v, %d bytes left", done, left)
	}
}

// TestMessagesThatCameTogether are handed on with one Flush, so that they are answered together.
func TestMessagesThatCameTogether(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, what)
	}
	c := newCluster(t)
	a := c.node("a", patient)
	done := make(chan struct{})
	b := c.node("b", func(cfg *Config) {
		patient(cfg)
		cfg.Queue = func(transfer.Event) { note("message") }
		cfg.Flush = func() { note("flush"); close(done) }
	})
	a.knows(b)
	epoch := met(a, b)
	for i := range uint64(4) {
		a.Queue("b", epoch, &transfer.MsgGo{Xfer: transfer.XferID(i + 1)}, false)
	}
	a.Flush()
	<-done
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"message", "message", "message", "message", "flush"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}
