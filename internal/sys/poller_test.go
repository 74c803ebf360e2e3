package sys

import "testing"

// A poller tells of what was asked for and has come, once, and again when asked again.
func TestPoller(t *testing.T) {
	p, err := NewPoller()
	noErr(t, err)
	a, b := tcpPair(t)
	c, d := tcpPair(t)
	one, two := fdOf(t, b), fdOf(t, d)
	want := func(ready ...Ready) {
		t.Helper()
		got, err := p.Wait()
		noErr(t, err)
		if len(got) != len(ready) {
			t.Fatalf("%+v is ready, want %+v", got, ready)
		}
		for i := range got {
			if got[i] != ready[i] {
				t.Fatalf("%+v is ready, want %+v", got, ready)
			}
		}
	}
	noErr(t, p.Arm(one, true, false))
	noErr(t, p.Arm(two, true, true))
	want(Ready{FD: two, Write: true})
	_, err = a.Write([]byte("x"))
	noErr(t, err)
	want(Ready{FD: one, Read: true})
	// Neither is told of again unasked, although there is something to read still.
	_, err = c.Write([]byte("x"))
	noErr(t, err)
	noErr(t, p.Arm(two, true, false))
	want(Ready{FD: two, Read: true})
	noErr(t, p.Arm(one, true, false))
	want(Ready{FD: one, Read: true})
	noErr(t, p.Arm(one, false, false))
	noErr(t, Shutdown(one))
	noErr(t, a.Close())
	want(Ready{FD: one, Read: true, Write: true})
	noErr(t, p.Disarm(one))
	if err := p.Disarm(one); err == nil {
		t.Error("disarmed what is not armed")
	}
	if err := p.Arm(-1, true, false); err == nil {
		t.Error("armed what is no socket")
	}
}

// Close wakes who waits.
func TestPollerClose(t *testing.T) {
	p, err := NewPoller()
	noErr(t, err)
	ended := make(chan error)
	go func() { _, err := p.Wait(); ended <- err }()
	noErr(t, p.Close())
	if err := <-ended; err == nil {
		t.Error("the wait ended with a socket")
	}
	if err := p.Arm(0, true, false); err == nil {
		t.Error("armed after Close")
	}
}
