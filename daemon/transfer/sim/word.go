package sim

import (
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// In ragged seeds a pipe may be closed with nothing in it before anybody came to receive. The first receiver with its
// token that comes within its linger has to hear that, unless there is another sender by then. Some ends come with a
// wrong token, and get nothing.

// word is that a pipe was closed with nothing in it, and nobody has heard of it.
type word struct {
	until transfer.Time
	life  int // of its daemon
}

// alone says whether it is known who comes to the home: all ends are on its node, and none of them is open.
func (h *sender) alone() bool {
	return h.here && !h.buffer && !slices.ContainsFunc(h.ends, func(e *receiver) bool { return running(e.bind) })
}

// leaveWord: the home has ended, and when it began nobody was there.
func (h *sender) leaveWord() {
	n, c := h.eng.node, h.c
	came := slices.ContainsFunc(h.ends, func(e *receiver) bool { return e.began >= h.began })
	if !came && len(h.terms[h.life].things) == 0 && !n.reloaded { // other limits may be in the way of the word
		h.word = &word{c.now + c.cfg.PipeLinger, n.life}
		c.words++
	}
}

// hears is called when the daemon has the end.
func (e *receiver) hears(bind *Op) {
	w, n := e.word, e.eng.node
	if w != nil && bind.wrong == "" && running(bind) {
		e.word, e.due = nil, w.life == n.life && e.c.now < w.until
	}
}

// heard checks what becomes of the gets of an end that has to hear of the pipe's end.
func (e *receiver) heard(bind, o *Op, x transfer.Complete) {
	told := x.Reason == transfer.Closed && strings.Contains(x.Text, "closed by its sender")
	if e.bind == bind && running(bind) && e.due && !told && (x.Status == transfer.Done || x.Reason == transfer.Timeout || x.Reason == transfer.Closed) {
		e.fail("op %d: %s was closed with nothing in it, and its first receiver is not told so: %d %s", o.tag, e.name, x.Status, x.Text)
	}
}

// denied checks that nobody is who has the token.
func (e *receiver) denied(o *Op, x transfer.Complete) {
	if x.Reason == transfer.Denied && o.wrong == "" {
		e.fail("op %d: an end with the token of %s is denied: %s", o.tag, e.name, x.Text)
	}
}
