package gpu

import (
	"errors"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/internal/pulse"
)

// Config says where to look.
type Config struct {
	Off     bool   // do not look at all
	Library string // path of libnvidia-ml.so.1; "": the loader finds it. A process can use only one
	Root    string // holds proc and sys; "": "/"
	// Notify is told of every change, in order and one at a time, with the inventory as it is then. It may be nil.
	Notify func(Inventory, Event)
}

// The watcher's times. NVML does not announce that a driver was installed, a MIG split was changed or an NVLink came
// up, so the watcher looks now and then. It keeps errors until they are asked for. One could also wait for them in C, but
// the Go runtime wakes up often to look after a thread that does, which costs an idle daemon more than all else.
const (
	askEvery  = time.Second      // for errors
	lookEvery = 30 * time.Second // a few cheap questions for each GPU
	readEvery = 10 * time.Minute // everything is read again
	retry     = 30 * time.Second // while there are no GPUs
	settle    = askEvery / 2     // from an Xid to reading what it changed, when it asks next
	readGap   = 10 * time.Second // between two such readings, when errors come in swarms
	trouble   = 5 * time.Second  // after asking failed, if it failed shortly before, too
	stuck     = 5 * time.Second  // after this time Close gives up on an NVML that does not return
)

// source is NVML, or its substitute in tests. Only the watcher's goroutine calls it.
type source interface {
	// open starts NVML and reads everything. If the State is not OK, NVML is closed again.
	open() Inventory
	// look says, at little cost, whether there is something new to read.
	look() verdict
	read() Inventory
	// ask returns, at once, the next error that it has not returned yet, or nothing.
	ask() (report, answer)
	close()
}

type verdict int

const (
	same    verdict = iota
	changed         // read says what
	gone            // GPUs came or went: NVML has to start again to see that
)

// report is an Xid that arrived.
type report struct {
	uuid, instance string
	code           uint64
}

type answer int

const (
	nothing answer = iota
	arrived
	failed  // reading will show why, such as a lost GPU
	useless // none of the GPUs reports errors
)

// Watcher keeps an inventory up to date. Its methods may be called from any goroutine.
type Watcher struct {
	src    source
	notify func(Inventory, Event)
	stop   chan struct{}
	done   chan struct{}
	told   map[told]time.Time // when each Xid was last reported; used by the goroutine alone

	mu   sync.Mutex
	now  Inventory
	xids map[string]*Xid // by UUID: the last error of each GPU, also of those that are gone
}

type told struct {
	uuid string
	code uint64
}

// Watch begins to look and returns at once. Until the first Event nothing is known, and the State is Starting. Close
// ends it.
func Watch(c Config) *Watcher {
	if c.Root == "" {
		c.Root = "/"
	}
	if c.Off {
		return watch(nil, Inventory{State: Off, Reason: "GPUs are not looked for: gpu.nvml is \"off\""}, c.Notify)
	}
	src, why := newSource(c)
	return watch(src, why, c.Notify)
}

// watch runs on src. If there is none, it only reports why.
func watch(src source, none Inventory, notify func(Inventory, Event)) *Watcher {
	w := &Watcher{
		src: src, notify: notify, stop: make(chan struct{}), done: make(chan struct{}), told: map[told]time.Time{}, xids: map[string]*Xid{},
		now: Inventory{State: Starting, Reason: "NVML is still starting"},
	}
	go func() {
		defer close(w.done)
		if src == nil {
			w.publish(none)
			return
		}
		w.src = prompt{src, w.hangs, w.returned}
		w.run()
	}()
	return w
}

// Inventory returns what is known now.
func (w *Watcher) Inventory() Inventory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// Close ends the watching; no Event comes after it. It fails if NVML does not return, which a broken GPU can cause.
// Then a thread is left behind in NVML.
func (w *Watcher) Close() error {
	close(w.stop)
	t := time.NewTimer(stuck)
	defer t.Stop()
	select {
	case <-w.done:
		return nil
	case <-t.C:
		return errors.New("NVML does not return from a call: nvidia-smi and the kernel's log may say which GPU hangs")
	}
}

// run is the goroutine. It starts NVML, again and again while there is no GPU, and watches the GPUs.
func (w *Watcher) run() {
	for {
		i := w.src.open()
		w.publish(i)
		if i.State == OK {
			stopped := w.attend()
			w.src.close()
			if stopped {
				return
			}
			continue
		}
		if w.pause(retry) {
			return
		}
	}
}

// attend watches the GPUs until Close (true), or until NVML has to start again (false).
func (w *Watcher) attend() (stopped bool) {
	read := time.Now()
	next, full := read.Add(lookEvery), read.Add(readEvery)
	var failure time.Time
	for !w.stopping() {
		began := time.Now()
		r, what := w.src.ask()
		switch what {
		case arrived:
			w.xid(r)
			full = earlier(full, later(began.Add(settle), read.Add(readGap)))
			next = earlier(next, full)
		case failed:
			w.publish(w.src.read())
			if began.Sub(failure) < 2*trouble {
				w.pause(trouble)
			}
			failure = began
		case useless:
			w.pause(time.Until(next))
		case nothing:
			w.pause(pulse.Until(askEvery))
		}
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(lookEvery)
		switch v := w.src.look(); {
		case v == gone:
			return false
		case v == changed, !time.Now().Before(full):
			w.publish(w.src.read())
			read = time.Now()
			full = read.Add(readEvery)
		}
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (w *Watcher) stopping() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// pause waits for d or for Close, and says whether it was Close.
func (w *Watcher) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.stop:
		return true
	case <-t.C:
		return false
	}
}

// publish makes next the inventory and reports what changed.
func (w *Watcher) publish(next Inventory) {
	w.mu.Lock()
	old := w.now
	next = carry(old, next, w.xids)
	w.now = next
	w.mu.Unlock()
	w.tell(next, changes(old, next)...)
}

func (w *Watcher) tell(now Inventory, events ...Event) {
	for _, e := range events {
		if w.notify != nil && !w.stopping() {
			w.notify(now, e)
		}
	}
}
