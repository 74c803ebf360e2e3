package session_test

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestNothingIsReadOfWhoBrokeTheProtocol: its reader ends with it, and does not look again and again until a control message of before is worked off.
func TestNothingIsReadOfWhoBrokeTheProtocol(t *testing.T) {
	held, on := make(chan struct{}), make(chan struct{})
	n := start(t, func(c *session.Config) {
		events := c.Events
		c.Events = func(ev transfer.Event) {
			if _, invalid := ev.(transfer.RegionInvalidated); invalid {
				close(held)
				<-on
			}
			events(ev)
		}
	})
	c := n.dial(sessiontest.Options{})
	_, err := c.Send(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: 4096, Kind: ring.RegisterMemfd, Flags: ring.RegisterInvalid}))
	noErr(t, err)
	<-held
	c.Rings.Corrupt(^uint32(0), 0)
	noErr(t, c.Wake())
	eventually(t, func() bool { return n.Sessions()[0].Ending }, "%+v", n.Sessions)
	var last session.Info
	for range 1000 {
		last = n.Sessions()[0]
	}
	close(on)
	if last.Wakeups > 2 {
		t.Errorf("the reader woke %d times", last.Wakeups)
	}
}
