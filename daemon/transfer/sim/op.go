package sim

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Op is an operation as its clients see it.
type Op struct {
	c         *Cluster
	kind      string // "offer", "take", "watch", "drop", "small", and those of ends
	sess      *Session
	concerned []*Session // sess first
	user, tag uint64
	req       *Request
	gen       int
	ids       []uint32
	lists     []layout.BlockList
	shape     shape // by which a take names blocks
	after     uint64
	layered   bool
	conflict  bool          // its blocks are in use: it has to be refused
	holder    string        // by what
	wrong     string        // what is wrong with it, so that it must fail; "": nothing
	given     bool          // the machine has it
	kept      bool          // it was submitted when there was no daemon
	passedOn  bool          // the daemon left it to the next one, which does not know it yet
	granted   bool          // bytes of it may have landed
	in        transfer.Op   // what was submitted
	more      []transfer.Op // offers: extensions that were accepted, the last of which may seal it
	untaken   []transfer.Op // offers: extensions that were not accepted, or of which that is not known
	bare      bool          // offers: its first segment comes with an extension
	short     bool          // offers: its extensions may be refused: one that failed has others behind it, or its ranks do not fit together
	bereft    bool          // a rank gave up the memory that it was about, and no daemon knew of both
	undone    bool          // its cancel was under way when the daemon went
	local     bool          // the library ended it: no daemon knows it, so no rank hears of it
	notice    bool          // the ranks have to hear from the next daemon that it failed
	noticed   uint64        // user data of what tells them so
	heard     bool          // the next daemon has answered that
	limit     transfer.Time // its terminal completion has to come before that; 0: none
	timeout   transfer.Time
	ends      map[*Session]*outcome
	leg       transfer.XferID // transfer of the first byte that landed
	freed     bool
	withdrawn bool                 // its withdrawal was submitted
	closing   bool                 // a bind: its end is being closed
	crowded   bool                 // refused, perhaps when it was sent again, for a limit that a reload may have lowered
	segs      [][]layout.BlockList // an offer's segments
	instance  int                  // the engine's
	part      int
	parts     int
	attempt   int
	onEnd     func(transfer.Complete)
	pipe      *conduit // the pipe or lookup buffer of its end; nil: none
	item      *thing   // the item that it puts
}

// outcome is what one session was told.
type outcome struct {
	status      transfer.Status
	reason      transfer.Reason
	more        bool
	released    bool
	quarantined bool
}

// newOp registers an operation of a session.
func (c *Cluster) newOp(kind string, s *Session, ranks []*Session) *Op {
	s.lastUser++
	c.lastTag++
	o := &Op{c: c, kind: kind, sess: s, concerned: []*Session{s}, user: s.lastUser, tag: c.lastTag, instance: s.instance, ends: map[*Session]*outcome{}}
	for _, r := range ranks {
		if r != s {
			o.concerned = append(o.concerned, r)
		}
	}
	c.ops = append(c.ops, o)
	c.byTag[o.tag] = o
	s.byUser[o.user] = o
	return o
}

// bound is how much later than its deadline an operation may end.
func (c *Cluster) bound() transfer.Time { return c.cfg.FenceGrace + 2*ms }

// complete handles a completion as it comes out of a session's ring.
func (s *Session) complete(e transfer.Complete) {
	c := s.node.c
	o := c.byTag[e.Tag]
	if o == nil {
		c.fail("node %s: completion with unknown tag %d", s.node.name, e.Tag)
		return
	}
	lower := e.Reason == transfer.Quota && s.node.reloaded // limits may be lower now
	o.crowded = o.crowded || s == o.sess && lower
	if !s.open && s.drained {
		c.fail("node %s: completion for session %d after it was drained", s.node.name, s.id)
	}
	if s == o.sess && e.UserData != 0 && e.UserData != o.user && (s.quiet[e.UserData] != nil || e.UserData == o.noticed) {
		s.credits--
		s.collect() // the library's own business
		o.heard = o.heard || e.UserData == o.noticed
		if e.Status == transfer.Failed && s.quiet[e.UserData] != nil && running(o) {
			if !lower && !o.short && !o.outOfStep() {
				c.fail("op %d: an extension that was sent again is refused, and its offer with it: %s", o.tag, e.Text)
			}
			o.short = true
		}
		if e.Status == transfer.Done {
			o.accepts(s.quiet[e.UserData])
		}
		return
	}
	if (s == o.sess) != (e.UserData == o.user) || s != o.sess && e.UserData != 0 {
		c.fail("op %d: completion with user data %d in session %d", o.tag, e.UserData, s.id)
	}
	if !slices.Contains(o.concerned, s) && o.noticed != 0 && e.Reason == transfer.Restarted { // a daemon cannot know whom it concerned two daemons ago
		s.credits--
		s.collect()
		return
	}
	if !slices.Contains(o.concerned, s) {
		c.fail("op %d: completion for session %d, which it does not concern", o.tag, s.id)
	}
	s.credits--
	if s.credits < 0 {
		c.fail("node %s: session %d got more completions than it has room for", s.node.name, s.id)
	}
	s.collect()
	o.told(s, e)
}

// outOfStep says whether something of another rank's offer under the key was refused for a limit that a reload may have lowered.
func (o *Op) outOfStep() bool {
	return slices.ContainsFunc(o.c.ops, func(x *Op) bool { return x.kind == "offer" && x.req == o.req && x.crowded })
}

// collect returns the completion's credit a little later, as a client that polls now and then.
func (s *Session) collect() {
	c := s.node.c
	d := c.delay()
	if s.lazy {
		d += c.rng.span(0, 500*ms)
	}
	if s.lazy && c.opts.Ragged && !c.calm { // its process may also hang for a while
		if c.rng.hit(3) {
			s.hung = c.now + c.rng.span(0, 4*second)
		}
		d = max(d, s.hung-c.now)
	}
	s.node.later(d, func() {
		if s.open {
			s.credits++
			s.node.step(transfer.CreditsReturned{Session: s.id, N: 1})
		}
	})
}

func (o *Op) told(s *Session, e transfer.Complete) {
	c, u := o.c, o.ends[s]
	switch e.Status {
	case transfer.Released:
		if u == nil || !u.more || u.released {
			c.fail("op %d (%s): RELEASED in session %d without a terminal completion that promised it", o.tag, o.kind, s.id)
			return
		}
		u.released = true
	case transfer.Quarantined:
		if u == nil || !u.more || u.released || u.quarantined {
			c.fail("op %d (%s): QUARANTINED in session %d out of order", o.tag, o.kind, s.id)
			return
		}
		u.quarantined = true
	default:
		if u != nil {
			c.fail("op %d (%s): second terminal completion %d in session %d, after %d", o.tag, o.kind, e.Status, s.id, u.status)
			return
		}
		u = &outcome{status: e.Status, reason: e.Reason, more: e.More, released: !e.More}
		o.ends[s] = u
		o.terminal(s, e)
		if e.More {
			o.checkReleased(s)
		}
	}
	c.after(0, func() { // the other sessions hear of it in the same step
		if o.settled() {
			o.free()
		}
	})
}

// terminal checks what an operation's end claims.
func (o *Op) terminal(s *Session, e transfer.Complete) {
	c := o.c
	// Completions for which no room was reserved wait until a client collects others.
	waits := s.lazy && (o.kind == "small" || e.Status == transfer.Failed || o.local)
	if o.limit > 0 && c.now > o.limit && !waits && o.noticed == 0 {
		c.fail("op %d (%s): ended %v late", o.tag, o.kind, c.now-o.limit)
	}
	if strings.Contains(e.Text, madWords) && !o.exposed() {
		c.fail("op %d (%s of %s): a mad node ended it, which has no part in it: %s", o.tag, o.kind, o.about(), e.Text)
	}
	if e.Status == transfer.Failed && (e.Reason == transfer.OK || e.Text == "") {
		c.fail("op %d (%s): failed without reason or text", o.tag, o.kind)
	}
	for _, other := range o.concerned {
		if u := o.ends[other]; u != nil && u.status != e.Status {
			c.fail("op %d (%s): session %d was told %d, session %d %d", o.tag, o.kind, other.id, u.status, s.id, e.Status)
		}
	}
	if o.conflict && (e.Status == transfer.Done || e.More) {
		c.fail("op %d (%s): a conflicting hold was granted over blocks of %s: status %d", o.tag, o.kind, o.holder, e.Status)
	}
	if o.kind == "take" {
		o.checkNamed(e)
	}
	o.meet(e)
	if o.wrong != "" && e.Status == transfer.Done {
		c.fail("op %d (%s): done, and %s", o.tag, o.kind, o.wrong)
	}
	if o.bereft && (e.Status == transfer.Done || o.granted) {
		c.fail("op %d (%s): begun, and a rank has given up the memory that it was about", o.tag, o.kind)
	}
	switch {
	case o.kind == "take" && e.Status == transfer.Done:
		o.checkRanks()
		if len(o.lists) > 1 {
			c.slid++
		}
		o.checkBytes(0, allLayers, nil)
		o.checkCount(s, e.Bytes)
		o.took()
	case e.Status == transfer.WasCancelled && strings.Contains(e.Text, "before it began"):
		o.local = true // as without a daemon: its ranks never hear of it
	case o.kind == "take" && strings.Contains(e.Text, "is being taken by"):
		o.turnedAway(e.Text)
	case o.kind == "take" && e.Status == transfer.Failed && e.Reason == transfer.NotFound && strings.Contains(e.Text, "lacks some of the blocks"):
		o.checkFailed(e.Failed)
		o.checkBytes(0, allLayers, e.Failed)
	case o.kind == "take" && e.Status == transfer.Failed && o.granted:
		o.checkBytes(0, allLayers, e.Failed)
	case o.kind == "offer" && e.Status == transfer.Done:
		o.req.consumed(o)
	}
	if offer := s.extended(o.in); offer != nil {
		switch {
		case e.Reason == transfer.Invalid && !offer.short:
			c.fail("op %d: an extension is refused: %s", o.tag, e.Text)
		case e.Status == transfer.Done:
			offer.more = append(offer.more, o.in)
			offer.accepts(o.in)
		default:
			offer.short = true
		}
	}
	if s == o.sess && o.onEnd != nil {
		o.onEnd(e)
	}
}

// checkRanks checks that what is done is done in all ranks that it was for. A rank of which no daemon has ever heard is
// none of these.
func (o *Op) checkRanks() {
	for _, s := range o.ranksOf() {
		if s.id != 0 && (s.drained || s.away) {
			o.c.fail("op %d (take of %s by %s): done, and rank %d, which it was for, is not there", o.tag, o.req.key, s.eng.called(), s.rank)
		}
	}
}

// checkBytes compares the destination with the request's pattern. All bytes must be of the same offer.
func (o *Op) checkBytes(first, last int, failed []layout.Run) {
	c, gen := o.c, -1
	if o.madeUp() {
		return
	}
	for _, s := range o.ranksOf() {
		if s.drained {
			continue
		}
		for _, b := range o.lists {
			b = without(b, failed)
			s.mem.each(b, 0, len(s.mem.part.layers), func(layer uint32, token, head int, cell []byte) bool {
				if int(layer) < first || int(layer) >= last || !o.req.has(layer, head) {
					return true
				}
				got := binary.LittleEndian.Uint64(cell)
				if gen < 0 {
					for g := range o.req.gens + 1 {
						if pattern(o.req.id, g, layer, token, head) == got {
							gen = g
						}
					}
				}
				if gen < 0 || got != pattern(o.req.id, gen, layer, token, head) {
					c.fail("op %d (take of %s by %s): wrong bytes in session %d rank %d: layer %d token %d head %d",
						o.tag, o.req.key, s.eng.name, s.id, s.rank, layer, token, head)
					return false
				}
				return true
			})
		}
	}
	o.gen = max(gen, 0)
}

// checkCount checks how many bytes a session is told of a take that is done: those of its rank, or of all ranks if it asked.
func (o *Op) checkCount(s *Session, bytes uint64) {
	want := uint64(0)
	for _, w := range o.ranksOf() {
		if w != s && s != o.sess {
			continue
		}
		for _, b := range o.lists {
			w.mem.each(b, 0, len(w.mem.part.layers), func(layer uint32, token, head int, c []byte) bool {
				if o.req.has(layer, head) {
					want += cell
				}
				return true
			})
		}
	}
	if bytes != want && !o.madeUp() {
		o.c.fail("op %d (take of %s by %s): session %d is told that %d bytes came, and %d did", o.tag, o.req.key, s.eng.called(), s.id, bytes, want)
	}
}

// without makes holes of failed blocks.
func without(b layout.BlockList, failed []layout.Run) layout.BlockList {
	if failed == nil {
		return b
	}
	b.IDs = slices.Clone(b.IDs)
	for i, id := range b.IDs {
		for _, r := range failed {
			if r.Group == b.Group && id >= r.First && id-r.First < r.Count {
				b.IDs[i] = layout.NoBlock
			}
		}
	}
	return b
}

func (o *Op) ranksOf() []*Session {
	if o.sess.role == transfer.Scheduler {
		return o.concerned[1:]
	}
	return o.concerned[:1]
}

// over is true once a session was told that its memory is its own again.
func (o *Op) over(s *Session) bool {
	u := o.ends[s]
	return u != nil && u.released
}

// settled is true once every live session was told that its memory is its own again.
func (o *Op) settled() bool {
	told := false
	for _, s := range o.concerned {
		u := o.ends[s]
		if u != nil {
			told = true
			if !u.released && s.open {
				return false
			}
		}
	}
	if !told {
		return false
	}
	if refused := o.refused(); !refused {
		for _, s := range o.concerned {
			if s.open && o.ends[s] == nil {
				return false
			}
		}
	}
	return true
}

// refused says whether only the asker was told of the end, and that it failed.
func (o *Op) refused() bool {
	u := o.ends[o.sess]
	return u != nil && o.local || u != nil && u.status == transfer.Failed && !u.more && len(o.ends) == 1 && (!o.notice && o.noticed == 0 || o.sess.lazy)
}

// free gives the blocks back to their allocator. Their next user spoils them.
func (o *Op) free() {
	if o.freed {
		return
	}
	o.freed = true
	if o.conflict {
		return
	}
	for _, s := range o.ranksOf() {
		if !s.open {
			continue
		}
		var back []uint32
		for _, held := range []map[uint32]*Op{s.src, s.dst} {
			for at, by := range held {
				if by == o {
					back = append(back, at)
					delete(held, at)
				}
			}
		}
		s.mem.spoil(back, o.c.rng.next())
	}
	for _, id := range o.ids {
		if id != layout.NoBlock {
			o.sess.pool.free = append(o.sess.pool.free, id)
		}
	}
}

// granted: from here on bytes may land.
func (s *Session) granted(e transfer.Granted) {
	o := s.byUser[e.UserData]
	if o == nil || o.kind != "take" && o.kind != "get" || o.ends[s] != nil {
		s.node.c.fail("node %s: bytes are granted to operation %d, which is no running take", s.node.name, e.UserData)
		return
	}
	if o.wrong != "" {
		s.node.c.fail("op %d (%s of %s): bytes are granted, and %s", o.tag, o.kind, o.about(), o.wrong)
	}
	o.granted = true
}

// layerReady checks the layers that are said to be in place.
func (s *Session) layerReady(e transfer.LayerReady) {
	o := s.byUser[e.UserData]
	if o == nil || o.kind != "take" || o.ends[s] != nil {
		s.node.c.fail("node %s: layers reported for operation %d, which is no running take", s.node.name, e.UserData)
		return
	}
	ready := o.layersOf()
	if int(e.Ready) > len(ready) || e.Ready == 0 {
		s.node.c.fail("op %d (take of %s by %s): %d layers are reported, of %d", o.tag, o.req.key, s.eng.called(), e.Ready, len(ready))
		return
	}
	if len(o.lists) > 1 {
		s.node.c.readied++
	}
	o.checkBytes(0, int(ready[e.Ready-1])+1, nil)
}

// layersOf returns the layers that are counted for a take, ascending: for a worker those of the groups that it names,
// for a scheduler all that its ranks have.
func (o *Op) layersOf() []uint32 {
	var all []uint32
	for _, s := range o.ranksOf() {
		for _, l := range s.mem.part.layers {
			named := slices.ContainsFunc(o.lists, func(b layout.BlockList) bool { return b.Group == s.eng.shape.groupOf(l) })
			if named || o.sess.role == transfer.Scheduler {
				all = append(all, l)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkFailed checks that the offer lacks the blocks that the take is said to lack.
func (o *Op) checkFailed(failed []layout.Run) {
	if o.exposed() || o.madeUp() {
		return
	}
	lacks := o.holes()
	for _, r := range failed {
		for id := r.First; id-r.First < r.Count; id++ {
			if !slices.Contains(lacks, layout.Run{Group: r.Group, First: id, Count: 1}) {
				o.c.fail("op %d (take of %s by %s): block %d of group %d is said to be failed, which the offer has", o.tag, o.req.key, o.sess.eng.called(), id, r.Group)
				return
			}
		}
	}
}

// holes returns the take's blocks with tokens that the offer lacks.
func (o *Op) holes() []layout.Run {
	var out []layout.Run
	for _, b := range o.lists {
		for i, id := range b.IDs {
			bs := o.shape.size(b.Group)
			first, stop := tokensOf(b)
			at := (first/bs + i) * bs
			from, to := max(at, first), min(at+bs, stop)
			if id != layout.NoBlock && (o.req.lacks(b.Group, from, to) || o.req.untaken(b.Group, from, to)) {
				out = append(out, layout.Run{Group: b.Group, First: id, Count: 1})
			}
		}
	}
	return out
}
