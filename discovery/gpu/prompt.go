package gpu

import "time"

// hung is how long a call may take before NVML is reported not to return. On a large box it takes seconds to start.
const hung = 2 * time.Minute

// prompt is a source that reports when a call does not return: a broken GPU or driver can keep it for ever.
type prompt struct {
	source
	hangs   func() // called while the call still runs
	returns func() // called after hangs, once the call has returned after all
}

func (p prompt) call(ask func()) {
	told := make(chan struct{})
	t := time.AfterFunc(hung, func() { defer close(told); p.hangs() })
	ask()
	if !t.Stop() {
		<-told
		p.returns()
	}
}

func (p prompt) open() (i Inventory) {
	p.call(func() { i = p.source.open() })
	return i
}

func (p prompt) look() (v verdict) {
	p.call(func() { v = p.source.look() })
	return v
}

func (p prompt) read() (i Inventory) {
	p.call(func() { i = p.source.read() })
	return i
}

func (p prompt) ask() (r report, what answer) {
	p.call(func() { r, what = p.source.ask() })
	return r, what
}

func (p prompt) close() { p.call(p.source.close) }

const hangs = "NVML does not return from a call: what is known of GPUs may be old"

// hangs reports that a call does not return. What is known stays.
func (w *Watcher) hangs() {
	w.say(hangs, "see what nvidia-smi and the kernel's log say of a GPU that hangs; kvpiped goes on without news of GPUs")
}

func (w *Watcher) returned() { w.say("", "") }

// say gives the inventory another Reason and Fix.
func (w *Watcher) say(reason, fix string) {
	w.mu.Lock()
	w.now.Reason, w.now.Fix = reason, fix
	now := w.now
	w.mu.Unlock()
	w.tell(now, Event{Kind: StateChanged, Text: reason})
}
