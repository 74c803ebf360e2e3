package daemon

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// stands runs a daemon whose driver stands still from the beginning until letGo is called. Its stop gives up after 110 ms.
func stands(t *testing.T) (d *Daemon, stop func(), ended chan error, letGo func()) {
	t.Helper()
	c, f := settings(t, "a", t.TempDir())
	c.Advanced.DrainWait = config.Duration(10 * time.Millisecond)
	c, err := Complete(c, f, true)
	if err != nil {
		t.Fatal(err)
	}
	log := new(logbook)
	d, err = New(c, Options{Dev: true, Version: "test", Log: textLog(log)})
	if err != nil {
		t.Fatal(err)
	}
	d.standing = 100*time.Millisecond - endTimeout
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stuck, gate := make(chan struct{}), make(chan struct{})
	d.driver.Post(func() { close(stuck); <-gate })
	<-stuck
	return d, stop, ended, func() {
		t.Helper()
		close(gate)
		eventually(t, "it ends once the driver goes on", func() bool { return strings.Contains(log.String(), "msg=stopped") })
	}
}

const tooLong = "stopping took longer than 110ms: something stands still"

// TestStopsAlthoughTheDriverStands: the process is to end, and says why it did so without giving back what it has.
func TestStopsAlthoughTheDriverStands(t *testing.T) {
	_, stop, ended, letGo := stands(t)
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), tooLong) {
		t.Errorf("it ended with %v", err)
	}
	letGo()
}

// TestWhyItStoppedIsSaid: also where the stop itself did not come to its end.
func TestWhyItStoppedIsSaid(t *testing.T) {
	d, stop, ended, letGo := stands(t)
	defer stop()
	_ = d.adminSocket.Close() // its accept loop fails
	if err := <-ended; !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), tooLong) {
		t.Errorf("it ended with %v", err)
	}
	letGo()
}
