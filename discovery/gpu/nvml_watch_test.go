//go:build cgo

package gpu

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
	"github.com/kvpipe/kvpipe/test/fakenvml"
)

// patience is far more than anything here takes.
const patience = time.Minute

// TestWatch: the whole of it behind NVML's loader. GPUs are found, an error arrives by itself, and what it did to its GPU follows.
func TestWatch(t *testing.T) {
	box := fakenvml.Open(t, fakenvml.Scenario(t, "h200"))
	events := make(chan Event, 100)
	w := Watch(Config{Library: fakenvml.Library(t), Root: fixture.Text(t, kernel), Notify: func(_ Inventory, e Event) { events <- e }})
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	next := func(want Kind, uuid string) Event {
		t.Helper()
		select {
		case e := <-events:
			if e.Kind != want || e.Device.UUID != uuid {
				t.Fatalf("%+v, want %s of %q", e, want, uuid)
			}
			return e
		case <-time.After(patience):
			t.Fatalf("no %s of %q", want, uuid)
		}
		return Event{}
	}
	next(StateChanged, "")
	for _, d := range w.Inventory().Devices {
		next(Added, d.UUID)
	}
	box.Say("GPU-h3", "xid 79")
	if e := next(XidArrived, "GPU-h3"); e.Device.Xid.Code != 79 {
		t.Errorf("%+v", e.Device.Xid)
	}
	box.Say("GPU-h3", "answer 15")
	next(LostOne, "GPU-h3")
	box.Say("GPU-h5", "xid 31") // the others are still heard
	next(XidArrived, "GPU-h5")
	lost := 0
	for _, d := range w.Inventory().Devices {
		if d.Lost {
			lost++
		}
	}
	if lost != 1 || len(w.Inventory().Devices) != 8 {
		t.Errorf("%d of %d GPUs are lost", lost, len(w.Inventory().Devices))
	}
}
