package gpu

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/internal/pulse"
)

// script is a source that a test steers, with a clock of its own (synctest).
type script struct {
	mu      sync.Mutex
	now     Inventory
	verdict verdict
	opened  int
	reads   int
	looks   int
	asked   int
	what    answer // what asking gives when there is no report
	errors  []report
	stuck   chan struct{} // asking does not return before it is closed; nil: it does
	slow    chan struct{} // the same of opening
}

func (s *script) set(f func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *script) open() Inventory {
	if s.slow != nil {
		<-s.slow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	return s.fresh()
}

func (s *script) read() Inventory {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	s.verdict = same
	return s.fresh()
}

// fresh is now, as NVML would tell it anew.
func (s *script) fresh() Inventory {
	i := s.now
	i.Devices = slices.Clone(i.Devices)
	return i
}

func (s *script) look() verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	v := s.verdict
	if v == gone {
		s.verdict = same
	}
	return v
}

func (s *script) ask() (report, answer) {
	s.mu.Lock()
	s.asked++
	if len(s.errors) > 0 {
		r := s.errors[0]
		s.errors = s.errors[1:]
		s.mu.Unlock()
		return r, arrived
	}
	what, stuck := s.what, s.stuck
	s.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	return report{}, what
}

func (s *script) close() {}

// heard collects events as "kind uuid".
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) notify(_ Inventory, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, strings.TrimSpace(string(e.Kind)+" "+e.Device.UUID))
}

// want takes what was heard and compares.
func (h *heard) want(t *testing.T, events ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(events, h.list); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	h.list = nil
}

func two() Inventory {
	return Inventory{State: OK, Devices: []Device{{Index: 0, UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}}}
}

// watching runs a test within a bubble of time.
func watching(t *testing.T, i Inventory, f func(*script, *Watcher, *heard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, h := &script{now: i}, new(heard)
		w := watch(s, Inventory{}, h.notify)
		time.Sleep(pulse.Until(askEvery) + askEvery/2) // so that no test does something at the very moment of a question
		synctest.Wait()
		f(s, w, h)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFound: what is there at the start is told, and then nothing is, and little is asked.
func TestFound(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		if i := w.Inventory(); i.State != OK || len(i.Devices) != 2 {
			t.Errorf("%+v", i)
		}
		time.Sleep(time.Hour)
		h.want(t)
		s.set(func(s *script) {
			if s.opened != 1 || s.reads > 6 || s.looks > 125 || s.asked > 3602 {
				t.Errorf("in an hour: opened %d times, read %d, looked %d, asked for errors %d times", s.opened, s.reads, s.looks, s.asked)
			}
		})
	})
}

// TestStarting: nobody waits for an NVML that takes long to start.
func TestStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{now: two(), slow: make(chan struct{})}
		w := watch(s, Inventory{}, nil)
		synctest.Wait()
		if i := w.Inventory(); i.State != Starting || i.Reason == "" || len(i.Devices) != 0 {
			t.Errorf("before: %+v", i)
		}
		close(s.slow)
		synctest.Wait()
		if i := w.Inventory(); i.State != OK {
			t.Errorf("after: %+v", i)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOff: a configuration can say not to look.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(heard)
		w := Watch(Config{Off: true, Notify: h.notify})
		h.want(t, "state")
		if i := w.Inventory(); i.State != Off || !strings.Contains(i.Reason, `gpu.nvml is "off"`) {
			t.Errorf("%+v", i)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDriverComesLater: a driver that is installed while the daemon runs is found; until then the same is not told twice.
func TestDriverComesLater(t *testing.T) {
	watching(t, Inventory{State: NoLibrary, Reason: "not there"}, func(s *script, w *Watcher, h *heard) {
		h.want(t, "state")
		time.Sleep(10 * retry)
		h.want(t)
		s.set(func(s *script) { s.now = two() })
		time.Sleep(retry)
		h.want(t, "state", "added GPU-0", "added GPU-1")
	})
}

// TestXid: an error is told within a second, counted and remembered, and soon everything is read again.
func TestXid(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		time.Sleep(time.Minute)
		before := w.Inventory()
		s.set(func(s *script) {
			s.reads = 0
			s.errors = append(s.errors, report{uuid: "GPU-1", code: 79})
			s.now.Devices[1].Lost = true
		})
		time.Sleep(askEvery)
		h.want(t, "xid GPU-1")
		time.Sleep(settle + askEvery)
		h.want(t, "lost GPU-1")
		d, _ := w.Inventory().Device("GPU-1")
		if d.Xid == nil || d.Xid.Code != 79 || d.Xid.Count != 1 || !d.Lost || time.Since(d.Xid.When) > 3*time.Second {
			t.Errorf("%+v", d)
		}
		if before.Devices[1].Xid != nil {
			t.Error("an inventory that was handed out has changed")
		}
		s.set(func(s *script) {
			if s.reads != 1 {
				t.Errorf("read %d times", s.reads)
			}
		})
	})
}

// TestManyXids: an application that fails causes errors by the hundred; they are counted, told once a minute and code, and do not
// keep the driver busy with questions.
func TestManyXids(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		s.set(func(s *script) { s.reads = 0 })
		for range 30 {
			s.set(func(s *script) {
				for range 10 {
					s.errors = append(s.errors, report{uuid: "GPU-0", code: 31})
				}
				s.errors = append(s.errors, report{uuid: "GPU-0", code: 13}, report{uuid: "nobody", code: 1})
			})
			time.Sleep(time.Second)
		}
		h.want(t, "xid GPU-0", "xid GPU-0")
		if d, _ := w.Inventory().Device("GPU-0"); d.Xid == nil || d.Xid.Count != 330 {
			t.Errorf("%+v", d.Xid)
		}
		s.set(func(s *script) {
			if s.reads > 4 {
				t.Errorf("read %d times in half a minute", s.reads)
			}
			s.errors = append(s.errors, report{uuid: "GPU-0", code: 31})
		})
		time.Sleep(xidQuiet)
		s.set(func(s *script) { s.errors = append(s.errors, report{uuid: "GPU-0", code: 31}) })
		time.Sleep(time.Second)
		h.want(t, "xid GPU-0")
	})
}

// TestLostAndBack: a GPU that is lost while errors are asked for is marked, the others stay, and it can come back.
func TestLostAndBack(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		s.set(func(s *script) {
			s.now.Devices[0].Lost, s.now.Devices[0].Problem = true, "lost"
			s.what, s.asked = failed, 0
		})
		time.Sleep(askEvery)
		h.want(t, "lost GPU-0")
		time.Sleep(time.Minute)
		s.set(func(s *script) {
			if s.asked > 15 {
				t.Errorf("asked %d times a minute with a set that fails", s.asked)
			}
			s.now = two()
			s.what = nothing
			s.verdict = changed
		})
		time.Sleep(lookEvery + trouble)
		h.want(t, "back GPU-0")
	})
}

// TestSplitAgain: MIG is reconfigured without any event; looking finds it.
func TestSplitAgain(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		s.set(func(s *script) {
			s.now.Devices[0].MIG, s.now.Devices[0].Instances = true, []Instance{{UUID: "MIG-1"}}
			s.what, s.verdict = useless, changed // no errors are reported here: looking goes on all the same
		})
		time.Sleep(lookEvery + askEvery)
		h.want(t, "mig GPU-0")
	})
}

// TestGone: GPUs that come and go make NVML start again; when none is left, that is a state.
func TestGone(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		s.set(func(s *script) {
			s.now = Inventory{State: OK, Devices: []Device{{Index: 0, UUID: "GPU-1"}, {Index: 1, UUID: "GPU-2"}}}
			s.verdict = gone
		})
		time.Sleep(lookEvery + askEvery)
		h.want(t, "removed GPU-0", "added GPU-2") // GPU-1 has another index now, which nobody needs to know
		s.set(func(s *script) { s.now, s.verdict = Inventory{State: NoDriver, Reason: "unloaded"}, gone })
		time.Sleep(lookEvery + askEvery)
		h.want(t, "state", "removed GPU-1", "removed GPU-2")
	})
}

// TestXidsOfAGPUThatWasGone: errors count since the daemon started, also those from before a reset that took the GPU off
// the bus, and from before the driver was loaded anew.
func TestXidsOfAGPUThatWasGone(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		s.set(func(s *script) { s.errors = append(s.errors, report{uuid: "GPU-1", code: 79}) })
		time.Sleep(askEvery)
		h.want(t, "xid GPU-1")
		s.set(func(s *script) { s.now.Devices, s.verdict = s.now.Devices[:1], gone })
		time.Sleep(lookEvery + askEvery)
		h.want(t, "removed GPU-1")
		s.set(func(s *script) { s.now, s.verdict = Inventory{State: NoDriver, Reason: "unloaded"}, gone })
		time.Sleep(lookEvery + askEvery)
		h.want(t, "state", "removed GPU-0")
		s.set(func(s *script) { s.now = two() })
		time.Sleep(retry)
		h.want(t, "state", "added GPU-0", "added GPU-1")
		d, _ := w.Inventory().Device("GPU-1")
		if d.Xid == nil || d.Xid.Code != 79 || d.Xid.Count != 1 {
			t.Errorf("back again: %+v", d.Xid)
		}
		s.set(func(s *script) { s.errors = append(s.errors, report{uuid: "GPU-1", code: 31}) })
		time.Sleep(askEvery)
		h.want(t, "xid GPU-1")
		if d, _ := w.Inventory().Device("GPU-1"); d.Xid == nil || d.Xid.Code != 31 || d.Xid.Count != 2 {
			t.Errorf("the next one: %+v", d.Xid)
		}
		if d, _ := w.Inventory().Device("GPU-0"); d.Xid != nil {
			t.Errorf("of the other: %+v", d.Xid)
		}
	})
}

// TestCannotBeOpened: one that does not even say its UUID any more is the one that was at its place.
func TestCannotBeOpened(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		s.set(func(s *script) {
			s.now.Devices = []Device{{Index: 0, Lost: true, Problem: "lost"}, {Index: 1, UUID: "GPU-1"}}
			s.verdict = gone
		})
		time.Sleep(lookEvery + askEvery)
		h.want(t, "lost GPU-0")
	})
}

// TestStuck: an NVML that does not return does not keep the daemon from stopping.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{now: two(), stuck: make(chan struct{})}
		w := watch(s, Inventory{}, nil)
		synctest.Wait()
		began := time.Now()
		if err := w.Close(); err == nil || !strings.Contains(err.Error(), "NVML does not return") || time.Since(began) != stuck {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(s.stuck)
		<-w.done
	})
}

// TestHangs: that NVML does not return from a call is told, once, with what was known; so is that it does again.
func TestHangs(t *testing.T) {
	watching(t, two(), func(s *script, w *Watcher, h *heard) {
		h.want(t, "state", "added GPU-0", "added GPU-1")
		stuck := make(chan struct{})
		s.set(func(s *script) { s.stuck = stuck })
		time.Sleep(10 * hung)
		h.want(t, "state")
		if i := w.Inventory(); i.State != OK || i.Reason != hangs || i.Fix == "" || len(i.Devices) != 2 {
			t.Errorf("while it hangs: %+v", i)
		}
		s.set(func(s *script) { s.stuck = nil })
		close(stuck)
		time.Sleep(askEvery)
		h.want(t, "state")
		if i := w.Inventory(); i.State != OK || i.Reason != "" || i.Fix != "" || len(i.Devices) != 2 {
			t.Errorf("when it goes on: %+v", i)
		}
	})
}

// TestDifferences: a change is told in words.
func TestDifferences(t *testing.T) {
	up, down := []Link{{Active: true}, {Active: true}}, []Link{{Active: true}, {}}
	for _, c := range []struct {
		was, is Device
		want    Event
	}{
		{Device{Links: up}, Device{Links: down}, Event{Kind: Changed, Text: "NVLinks: 1 of 2 are up, were 2"}},
		{Device{}, Device{Fabric: Fabric{State: "completed"}}, Event{Kind: Changed, Text: "its place in the NVLink fabric changed"}},
		{Device{}, Device{Problem: "odd"}, Event{Kind: Changed, Text: "odd"}},
		{Device{}, Device{BAR1: 1}, Event{Kind: Changed, Text: "what NVML says of it changed"}},
		{Device{MIG: true, Instances: []Instance{{}}}, Device{}, Event{Kind: Split, Text: "MIG: 0 instances, were 1"}},
		{Device{Index: 1}, Device{Index: 2}, Event{}},
	} {
		got := c.is.since(c.was)
		if got.Kind != c.want.Kind || got.Text != c.want.Text {
			t.Errorf("%+v to %+v: %s %q", c.was, c.is, got.Kind, got.Text)
		}
	}
}
