package transfer

import "slices"

// lane bounds what is posted to one peer over one transport, and lets users take turns, and the engines of each user.
type lane struct {
	key    laneKey
	slices int         // posted and not ended
	bytes  uint64      // what they weigh
	users  []*laneUser // those with something to post, in the order of their rounds
	round  uint64      // of the turn that is, or was last
	queued bool        // in Machine.pumping

	// Of those that have nothing to post just now: far below 0, and not the next one.
	budgets map[engineKey]int64
	rounds  map[uint32]uint64

	spare     *laneEngine
	spareUser *laneUser
}

type laneKey struct{ peer, transport string }

type laneUser struct {
	id      uint32
	round   uint64        // when its turn is
	engines []*laneEngine // those with something to post, the next one first
}

type laneEngine struct {
	key    engineKey
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
	m.toPump(l)
	u, key := l.user(v.offer.members[0].by.user), v.offer.engine.key
	for _, e := range u.engines {
		if e.key == key {
			e.serves = append(e.serves, v)
			return
		}
	}
	e := l.spare
	if l.spare = nil; e == nil {
		e = new(laneEngine)
	}
	e.key, e.serves, e.budget = key, append(e.serves[:0], v), l.budgets[key]
	delete(l.budgets, key)
	u.engines = append(u.engines, e)
}

// user returns the user, who has something to post from now on. In each round each user has one turn: engines' names are
// free, and a user may have hundreds.
func (l *lane) user(id uint32) *laneUser {
	for _, u := range l.users {
		if u.id == id {
			return u
		}
	}
	u := l.spareUser
	if l.spareUser = nil; u == nil {
		u = new(laneUser)
	}
	u.id, u.round = id, max(l.round+1, l.rounds[id])
	delete(l.rounds, id)
	l.await(u)
	return u
}

// await gives a user a turn to wait for.
func (l *lane) await(u *laneUser) {
	i := len(l.users)
	for i > 0 && l.users[i-1].round > u.round {
		i--
	}
	l.users = slices.Insert(l.users, i, u)
}

// next returns the engine whose turn it is. One that has posted what weighs many turns is passed over until the user's other
// engines have had as many.
func (u *laneUser) next() *laneEngine {
	for {
		e := u.engines[0]
		if e.budget <= 0 {
			e.budget += turn
		}
		if e.budget <= 0 && len(u.engines) == 1 { // the user has let others have their turns
			e.budget = turn
		}
		if e.budget > 0 {
			return e
		}
		u.engines = append(slices.Delete(u.engines, 0, 1), e)
	}
}

// over ends the turn of a user, which that engine had. What weighs many turns takes as many of the user.
func (l *lane) over(u *laneUser, e *laneEngine) {
	u.round = l.round + 1 + uint64(max(-e.budget, 0)/turn)
	l.order(u)
}

// order puts a user in the place that its round gives it, or takes it out if it has nothing more to post.
func (l *lane) order(u *laneUser) {
	i := slices.Index(l.users, u)
	l.users = slices.Delete(l.users, i, i+1)
	if len(u.engines) > 0 {
		l.await(u)
		return
	}
	if u.round > l.round+1 {
		remember(&l.rounds, u.id, u.round)
	}
	l.spareUser = u
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

// pumpLane posts while the window has room, one engine after the other. A turn is measured in bytes, so neither many
// transfers nor large slices give anybody more than its share. Within the turn of an engine its transfers take turns.
func (m *Machine) pumpLane(l *lane) {
	from := len(m.keys)
	for len(l.users) > 0 && l.room(m) {
		u := l.users[0]
		l.round = u.round
		e := u.next()
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
		u.engines = slices.Delete(u.engines, 0, 1)
		if len(e.serves) > 0 {
			u.engines = append(u.engines, e)
		} else {
			l.owes(e)
			l.spare = e
		}
		l.over(u, e)
	}
	if l.slices == 0 && len(l.users) == 0 { // there are no others
		l.budgets, l.rounds = nil, nil
	}
	if keys := m.keys[from:]; len(keys) > 0 {
		m.emit(Post{Keys: keys, Transport: l.key.transport})
	}
}

// owes remembers by how much an engine that has nothing more to post has exceeded its turn, if that was by several. Else it
// would begin anew with its next transfer.
func (l *lane) owes(e *laneEngine) {
	if e.budget <= -turn {
		remember(&l.budgets, e.key, e.budget)
	}
}

// remember notes something of an engine or a user: of no more than maxDebts, since clients may name any number.
func remember[K comparable, V any](of *map[K]V, k K, v V) {
	const maxDebts = 1024
	if *of == nil || len(*of) >= maxDebts {
		*of = map[K]V{}
	}
	(*of)[k] = v
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
	for _, u := range l.users {
		for i, e := range u.engines {
			j := slices.Index(e.serves, v)
			if j < 0 {
				continue
			}
			e.serves = append(append([]*serve(nil), e.serves[:j]...), e.serves[j+1:]...)
			if len(e.serves) > 0 {
				return
			}
			u.engines = slices.Delete(u.engines, i, i+1)
			l.owes(e)
			switch {
			case e.budget > 0: // it was its turn
				l.over(u, e)
			case len(u.engines) == 0:
				l.order(u)
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
