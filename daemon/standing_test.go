package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// TestStopsAlthoughTheDriverStands: the process is to end, and says why it did so without giving back what it has.
func TestStopsAlthoughTheDriverStands(t *testing.T) {
	c, f := settings(t, "a", t.TempDir())
	c.Advance.DrainWait = config.Duration(10 * time.Millisecond)
	c, err := Complete(c, f, true)
	if err != nil {
		t.Fatal(err)
	}
	log := new(logbook)
	d, err := New(c, Options{Dev: true, Version: "test", Log: textLog(log)})
	if err != nil {
		t.Fatal(err)
	}
	d.standing = 100*time.Millisecond - endTimeout
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stuck, letGo := make(chan struct{}), make(chan struct{})
	d.driver.Post(func() { close(stuck); <-letGo })
	<-stuck
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "stopping took longer than 110ms: something stands still") {
		t.Errorf("it ended with %v", err)
	}
	close(letGo)
	eventually(t, "it ends once the driver goes on", func() bool { return strings.Contains(log.String(), "msg=stopped") })
}
