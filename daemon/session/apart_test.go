package session_test

import (
	"os"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestAUserIsDistrustedWhileAnotherSessionOfHisOpens: that one is woken apart as well, however far it has come.
func TestAUserIsDistrustedWhileAnotherSessionOfHisOpens(t *testing.T) {
	held, on := make(chan struct{}), make(chan struct{})
	n := start(t, func(c *session.Config) {
		events := c.Events
		c.Events = func(ev transfer.Event) {
			if e, closed := ev.(transfer.SessionClosed); closed && uint32(e.Session) == 1 {
				close(held)
				<-on
			}
			events(ev)
		}
	})
	rank := sessiontest.Options{Engine: "e", Instance: "i"}
	first := n.dial(rank)
	rings := n.Usage().Rings
	first.Kill()
	<-held
	second := make(chan *sessiontest.Client, 1)
	go func() {
		c, err := sessiontest.Dial(n.path, rank)
		if err != nil {
			t.Error(err)
		}
		second <- c
	}()
	// It has its rings, and waits for the rank to be free.
	eventually(t, func() bool { return n.Usage().Rings == 2*rings }, "rings have %d bytes", func() uint64 { return n.Usage().Rings })
	n.Beware(uint32(os.Getuid()))
	close(on)
	c := <-second
	if c == nil {
		return
	}
	defer c.Kill()
	if !n.Apart(transfer.SessionID(c.Welcome.Session)) {
		t.Error("it is not woken apart")
	}
}

// TestManyAreDistrusted: who can be any user fills no memory with them. When there are too many to remember, everybody is woken apart.
func TestManyAreDistrusted(t *testing.T) {
	var w session.Wary
	for uid := range uint32(session.MaxWary) {
		w.Add(uid)
	}
	if !w.Of(0) || w.Of(session.MaxWary) {
		t.Errorf("user 0: %v, one more: %v; want the first alone", w.Of(0), w.Of(session.MaxWary))
	}
	w.Add(session.MaxWary)
	if !w.Of(0) || !w.Of(session.MaxWary) || !w.Of(1<<31) || w.Users() != 0 {
		t.Errorf("not everybody is distrusted, or %d users are remembered", w.Users())
	}
}
