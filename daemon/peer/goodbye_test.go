package peer

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// byes is a user of links that has a look at the moment at which a channel has said its goodbye.
type byes struct {
	transport.LinkUser
	said func()
}

func (b *byes) LinksDown(peer string, epoch uint64) {
	b.said()
	b.LinkUser.LinksDown(peer, epoch)
}

// TestAChannelThatIsBehindSaysGoodbye: a daemon that stops says so, and what waited for the channel, also where the channel's reader waits
// for the machine. Until then nothing stops that reader, who would only hang up.
func TestAChannelThatIsBehindSaysGoodbye(t *testing.T) {
	c := newCluster(t)
	a := c.node("a", patient)
	var b *node
	stopped := false
	b = c.node("b", func(cfg *Config) {
		patient(cfg)
		cfg.After = func(func()) {} // its machine stands still
		cfg.Links = &byes{cfg.Links, func() { stopped = b.ctx.Err() != nil }}
	})
	b.onMessage(func(transfer.PeerMsg) {})
	a.knows(b)
	epoch := met(a, b)
	for i := range uint64(3 * maxBehind) {
		a.Send("b", epoch, &transfer.MsgGo{Xfer: transfer.XferID(i + 1)})
	}
	for !b.channelOf("a").behind.Load() {
		runtime.Gosched()
	}
	b.Queue("a", epoch, &transfer.MsgEnd{Xfer: 7, Status: transfer.Done}, true) // rides with the next message
	b.Close()
	if stopped {
		t.Error("the reader was stopped before the channel had said goodbye")
	}
	if down := wait[transfer.PeerDown](a, nil); !strings.Contains(down.Cause.Text, "shutting down") {
		t.Errorf("the channel ended with %q", down.Cause.Text)
	}
	if got := a.said(); !slices.ContainsFunc(got, func(m transfer.Msg) bool { _, ok := m.(*transfer.MsgEnd); return ok }) {
		t.Errorf("what waited for the channel was not sent; %d messages were", len(got))
	}
}

// said returns the messages that came and that nobody waited for.
func (n *node) said() (msgs []transfer.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ev := range n.events {
		if m, ok := ev.(transfer.PeerMsg); ok {
			msgs = append(msgs, m.Msg)
		}
	}
	return msgs
}
