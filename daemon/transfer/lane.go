package transfer

import "slices"

// lane bounds what is posted to one peer over one transport, and lets the engines take turns.
type lane struct {
	key     laneKey
	slices  int                 // posted and not ended
	bytes   uint64              // what they weigh
	engines []*laneEngine       // those with something to post, in the order of their rounds
	round   uint64              // of the turn that is, or was last
	queued  bool                // in Machine.pumping
	debts   map[engineKey]int64 // budgets of engines that have nothing to post just now; only those far below 0
	spare   *laneEngine
}

type laneKey struct{ peer, transport string }

type laneEngine struct {
	key    engineKey
	user   uint32
	round  uint64 // when its turn is
	serves []*serve
	budget int64 // bytes that it may still post in its turn; below 0: by how much it exceeded that
}

// laneMember is a serve's place in its lane.
type laneMember struct {
	lane   *lane
	waits  bool // in an engine's queue
	flying int
	bytes  uint64 // what they weigh
}

// What an engine may post before the next one's turn comes: about one large slice, or several small ones. A slice
// counts as leastSlice bytes at least, and each piece of memory in it as leastPiece, because small ones cost more than
// their bytes. A slice of single bytes takes a hundred times as long as others.
const (
	turn       = 1 << 20
	leastSlice = 64 << 10
	leastPiece = 128
)

// each is about how many bytes a slice of the segment has.
func (seg *sending) each() uint64 { return seg.bytes / max(uint64(seg.slices), 1) }

// weight is how many bytes a slice of the segment counts as.
func (seg *sending) weight() uint64 {
	return max(seg.each(), seg.pieces/max(uint64(seg.slices), 1)*leastPiece)
}

// enqueue puts a serve with slices to post into its lane.
func (m *Machine) enqueue(v *serve) {
	if v.lane.waits || v.state != serveMoving {
		return
	}
	seg := v.postable()
	if seg == nil {
		return
	}
	if v.lane.lane == nil {
		v.lane.lane = m.lane(laneKey{v.leg.id.Peer, seg.transport})
	}
	l := v.lane.lane
	v.lane.waits = true
	for _, e := range l.engines {
		if e.key == v.offer.engine.key {
			e.serves = append(e.serves, v)
			m.toPump(l)
			return
		}
	}
	e := l.spare
	if l.spare = nil; e == nil {
		e = new(laneEngine)
	}
	e.key, e.user, e.serves = v.offer.engine.key, v.offer.members[0].by.user, append(e.serves[:0], v)
	e.budget = l.debts[e.key]
	delete(l.debts, e.key)
	l.await(e)
	m.toPump(l)
}

// await gives an engine a turn to wait for. In each round each user has one: engines' names are free, and a user may have
// hundreds. So those of one user take turns among themselves.
func (l *lane) await(e *laneEngine) {
	e.round = l.round + 1
	for _, x := range l.engines {
		if x.user == e.user {
			e.round = max(e.round, x.round+1)
		}
	}
	i := len(l.engines)
	for i > 0 && l.engines[i-1].round > e.round {
		i--
	}
	l.engines = slices.Insert(l.engines, i, e)
}

func (m *Machine) lane(key laneKey) *lane {
	l := m.lanes[key]
	if l == nil {
		l = &lane{key: key}
		m.lanes[key] = l
	}
	return l
}

// toPump has the lane post at the end of this step, when all that the step caused is known.
func (m *Machine) toPump(l *lane) {
	if !l.queued {
		l.queued = true
		m.pumping = append(m.pumping, l)
	}
}

// postable is the first segment with a slice that may be posted now.
func (v *serve) postable() *sending {
	for _, seg := range v.segs {
		if seg.ready && (len(seg.again) > 0 || seg.next < seg.allowed) {
			return seg
		}
	}
	return nil
}

func (m *Machine) pump() {
	for len(m.pumping) > 0 {
		l := m.pumping[0]
		m.pumping = slices.Delete(m.pumping, 0, 1)
		l.queued = false
		m.pumpLane(l)
	}
}

// pumpLane posts while the window has room, one engine after the other. An engine's turn is measured in bytes, so
// neither many transfers nor large slices give it more than its share. One that has posted what weighs many turns is
// passed over until it has had as many. Within the turn its transfers take turns.
func (m *Machine) pumpLane(l *lane) {
	from := len(m.keys)
	for len(l.engines) > 0 && l.room(m) {
		e := l.engines[0]
		l.round = e.round
		if e.budget <= 0 {
			e.budget += turn
		}
		if e.budget <= 0 { // it is others' turn, if there are any
			l.engines = slices.Delete(l.engines, 0, 1)
			l.await(e)
			continue
		}
		v := e.serves[0]
		e.serves = slices.Delete(e.serves, 0, 1) // Delete clears the free place behind the others, so nothing of v is kept
		v.lane.waits = false
		for e.budget > 0 && l.room(m) {
			seg := v.postable()
			if seg == nil {
				break
			}
			m.keys = append(m.keys, v.take1(seg))
			seg.flying++
			v.lane.flying++
			v.lane.bytes += seg.weight()
			l.slices++
			l.bytes += seg.weight()
			e.budget -= int64(max(seg.weight(), leastSlice))
		}
		if v.postable() != nil {
			v.lane.waits = true
			e.serves = append(e.serves, v)
		}
		if len(e.serves) > 0 && e.budget > 0 {
			continue // it is still its turn
		}
		l.engines = slices.Delete(l.engines, 0, 1)
		if len(e.serves) > 0 {
			l.await(e)
		} else {
			l.owes(e)
			l.spare = e
		}
	}
	if l.slices == 0 && len(l.engines) == 0 { // there are no others
		l.debts = nil
	}
	if keys := m.keys[from:]; len(keys) > 0 {
		m.emit(Post{Keys: keys, Transport: l.key.transport})
	}
}

// maxDebts bounds the engines whose debts are remembered: clients may name any number of them.
const maxDebts = 1024

// owes remembers by how much an engine that has nothing more to post has exceeded its turn, if that was by several. Else it
// would begin anew with its next transfer.
func (l *lane) owes(e *laneEngine) {
	if e.budget > -turn {
		return
	}
	if l.debts == nil || len(l.debts) >= maxDebts {
		l.debts = map[engineKey]int64{}
	}
	l.debts[e.key] = e.budget
}

func (l *lane) room(m *Machine) bool {
	n := 1
	if l.key.peer == "" {
		n = m.cfg.WindowsHere
	}
	return l.slices == 0 || l.slices < n*m.cfg.WindowSlices && l.bytes < uint64(n)*m.cfg.WindowBytes
}

// take1 removes the next slice of the segment. Slices to be sent again come first.
func (v *serve) take1(seg *sending) SliceKey {
	if len(seg.again) > 0 {
		s := seg.again[0]
		seg.again = seg.again[1:]
		t := seg.tries[s].attempt
		seg.tries[s] = try{attempt: t}
		return SliceKey{Leg: v.leg.id, Seg: v.index(seg), Slice: s, Attempt: t}
	}
	k := SliceKey{Leg: v.leg.id, Slice: seg.next, Seg: v.index(seg)}
	seg.next++
	return k
}

func (v *serve) index(seg *sending) uint32 {
	for i := range v.segs {
		if v.segs[i] == seg {
			return uint32(i)
		}
	}
	return 0
}

// landedLane gives back the room of one slice.
func (m *Machine) landedLane(v *serve, seg *sending) {
	l := v.lane.lane
	v.lane.flying--
	v.lane.bytes -= seg.weight()
	l.slices--
	l.bytes -= seg.weight()
	m.toPump(l)
}

// leaveLane takes a serve out of its queue, so that nothing more of it is posted.
func (m *Machine) leaveLane(v *serve) {
	if !v.lane.waits {
		return
	}
	v.lane.waits = false
	l := v.lane.lane
	for i, e := range l.engines {
		for j, w := range e.serves {
			if w != v {
				continue
			}
			e.serves = append(append([]*serve(nil), e.serves[:j]...), e.serves[j+1:]...)
			if len(e.serves) == 0 {
				l.owes(e)
				l.engines = append(append([]*laneEngine(nil), l.engines[:i]...), l.engines[i+1:]...)
			}
			return
		}
	}
}

// settleLane gives back the room of slices that a fence ended without a report.
func (m *Machine) settleLane(v *serve) {
	l := v.lane.lane
	if l == nil {
		return
	}
	l.slices -= v.lane.flying
	l.bytes -= v.lane.bytes
	v.lane.flying, v.lane.bytes = 0, 0
	m.toPump(l)
}
