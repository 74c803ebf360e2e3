package transfer

import "fmt"

// Machine is the transfer machine of one daemon. It is not safe for concurrent use: its owner feeds it events and
// executes the effects, in order.
type Machine struct {
	cfg      Config
	now      Time
	out      []Effect
	inbox    []Msg // messages between this node's two ends
	keys     []SliceKey
	timers   []*timer
	armed    Time
	draining bool
	stopping bool // the daemon is about to end; its clients will come back to the next one
	frozen   bool // its channels and sessions are ending: what fails now is not reported, since the next daemon is asked
	home     homecoming

	mostItems int // the highest limit so far: a lower one takes away no item, nor the completions that are owed for it

	sessions map[SessionID]*session
	engines  map[engineKey]*lineage
	lastOp   OpID
	lastXfer XferID

	offers   map[string]*offer
	lastOffr uint64
	parked   map[string][]*serve // by key: takes that wait for an offer, for its ranks or for another consumer
	graves   graveyard
	serves   map[Leg]*serve

	takes     map[XferID]*take
	takeNames map[takeName]*take
	keyOps    map[uint64]*keyOp

	places    map[placeName]*place // pipes and lookup buffers
	binds     map[engineKey]int    // number of ends of each engine
	lingering estates              // number of homes that outlive their sessions
	estates   estates              // of dead sessions
	unheard   estates              // number of pipes whose end nobody has heard
	bound     map[*bind]struct{}
	seekers   map[Leg]*seeker // gets of other nodes
	doubts    map[doubtName]*seeker
	unbinds   map[uint64]*unbind // closed ends of which a home has to hear
	lastSeek  uint64

	peers   map[string]*peer
	routes  map[string]*route
	lanes   map[laneKey]*lane
	pumping []*lane
	trial   trial
}

// New returns a machine that knows nobody yet.
func New(cfg Config) *Machine {
	cfg.setDefaults()
	return &Machine{
		cfg:       cfg,
		mostItems: cfg.MaxItems,
		sessions:  map[SessionID]*session{},
		engines:   map[engineKey]*lineage{},
		lastXfer:  XferID(cfg.Random() &^ (1<<32 - 1)), // transfers of an earlier daemon of this node have other names
		lastOffr:  cfg.Random() &^ (1<<32 - 1),
		offers:    map[string]*offer{},
		parked:    map[string][]*serve{},
		graves:    graveyard{keys: map[string]*grave{}, plots: map[plotName]*plot{}},
		serves:    map[Leg]*serve{},
		takes:     map[XferID]*take{},
		takeNames: map[takeName]*take{},
		keyOps:    map[uint64]*keyOp{},
		places:    map[placeName]*place{},
		binds:     map[engineKey]int{},
		lingering: newEstates(),
		unheard:   newEstates(),
		estates:   newEstates(),
		bound:     map[*bind]struct{}{},
		seekers:   map[Leg]*seeker{},
		doubts:    map[doubtName]*seeker{},
		unbinds:   map[uint64]*unbind{},
		peers:     map[string]*peer{},
		routes:    map[string]*route{},
		lanes:     map[laneKey]*lane{},
	}
}

// Step takes one event and returns what has to be done about it, in order. The next Step reuses the slice, Post.Keys,
// and what a *MoveNow or *Complete points to, but nothing else that the effects refer to. now never moves back: a
// smaller value counts as the last one.
func (m *Machine) Step(now Time, ev Event) []Effect {
	m.now = max(m.now, now)
	clear(m.out)
	m.out, m.keys = m.out[:0], m.keys[:0]
	m.dispatch(ev)
	m.deliver()
	m.rearm()
	return m.out
}

func (m *Machine) dispatch(ev Event) {
	switch ev := ev.(type) {
	case Submit:
		m.submit(&ev)
	case SliceLanded:
		if t := m.consumer(ev.Key.Leg); t != nil {
			t.landed(m, ev.Key, ev.Cause)
		}
	case SliceSent:
		if v := m.producer(ev.Key.Leg); v != nil {
			v.sliceSent(m, ev.Key, ev.Cause)
		}
	case MovedNow:
		m.movedNow(ev)
	case Resume:
		m.resume()
	case Planned:
		m.planned(&ev)
	case Fenced:
		m.legFenced(ev)
	case InlineRead:
		if v := m.producer(ev.Leg); v != nil {
			v.inlineRead(m, &ev)
		}
	case InlineWritten:
		if t := m.consumer(ev.Leg); t != nil {
			t.inlineWritten(m, &ev)
		}
	case PeerMsg:
		m.peerMsg(&ev)
	case CreditsReturned:
		m.creditsReturned(ev)
	case Progress:
		m.progress(ev)
	case Tick:
		m.tick()
	case SessionOpened:
		m.sessionOpened(&ev)
	case Awaited:
		m.await(ev)
	case LayoutSet:
		m.layoutSet(ev)
	case SessionClosed:
		m.sessionClosed(ev)
	case RegionRemoved:
		m.regionRemoved(ev)
	case RegionInvalidated:
		m.regionInvalidated(ev)
	case RegionRevalidated:
		m.regionRevalidated(ev)
	case PeerUp:
		m.peerUp(ev)
	case PeerDown:
		m.peerDown(ev)
	case LinkLost:
		m.linkLost(ev)
	case DialFailed:
		m.dialFailed(ev)
	case Drain:
		m.drain(ev)
	case Ending:
		m.frozen = true
	default:
		panic(fmt.Sprintf("transfer: unknown event %T", ev))
	}
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) log(level int, text string, attrs ...any) {
	m.emit(Log{Level: level, Text: text, Attrs: attrs})
}

// consumer and producer find the end that a leg names on this node; nil when it is over.
func (m *Machine) consumer(l Leg) *take {
	if t := m.takes[l.Xfer]; t != nil && t.leg.id.Peer == l.Peer && t.leg.id.Epoch == l.Epoch {
		return t
	}
	return nil
}

func (m *Machine) producer(l Leg) *serve {
	l.End = Producer
	return m.serves[l]
}

func (m *Machine) planned(ev *Planned) {
	if ev.Leg.End == Consumer {
		if t := m.consumer(ev.Leg); t != nil {
			t.planned(m, ev)
		}
	} else if v := m.producer(ev.Leg); v != nil {
		v.planned(m, ev)
	}
}

// send hands a message to the other end: on the peer's channel, or, if p is nil, within this machine, after what is at hand.
func (m *Machine) send(p *peer, msg Msg) { m.sendMore(p, msg, false) }

func (m *Machine) sendMore(p *peer, msg Msg, more bool) {
	switch {
	case p == nil:
		m.inbox = append(m.inbox, msg)
	case p.up:
		m.emit(Send{Node: p.node, Epoch: p.epoch, Msg: msg, More: more})
	}
}

// backoff is how long to wait for an answer. Once the other end is known to have the request, each wait is longer than
// the one before, up to eight times Resend.
func (m *Machine) backoff(known bool, times *int) Time {
	d := m.cfg.Resend << min(*times, 3)
	if known {
		*times++
	}
	return d
}

// deliver hands over what the two ends on this node have to say to each other, and posts from the lanes.
func (m *Machine) deliver() {
	for i := 0; i < len(m.inbox); i++ { // what is handed over may have more said
		m.message(nil, m.inbox[i])
		m.inbox[i] = nil
	}
	m.inbox = m.inbox[:0]
	m.pump() // nobody says anything because of that
}

// message gives a message to the end that it is for.
func (m *Machine) message(p *peer, msg Msg) {
	switch msg := msg.(type) {
	case *MsgTake:
		m.askedFor(p, msg)
	case *MsgGo:
		if v := m.serveOf(p, msg.Xfer); v != nil {
			v.onGo(m, msg)
		}
	case *MsgResend:
		if v := m.serveOf(p, msg.Xfer); v != nil {
			v.onResend(m, msg)
		}
	case *MsgEnd:
		m.endOf(p, msg)
	case *MsgKey:
		m.keyAsked(p, msg)
	case *MsgLayout:
		m.learnLayout(p, msg)
	case *MsgNeedLayout:
		m.layoutNeeded(p, msg)
	case *MsgParked:
		if t := m.takeOf(p, msg.Xfer); t != nil {
			t.known, t.said = true, ""
		}
	case *MsgGrant:
		m.granted(p, msg)
	case *MsgSent:
		if t := m.takeOf(p, msg.Xfer); t != nil {
			t.onSent(m, msg)
		} else {
			m.disown(p, msg.Xfer)
		}
	case *MsgRefuse:
		if t := m.takeOf(p, msg.Xfer); t != nil {
			t.onRefuse(m, msg)
		}
	case *MsgAbort:
		if t := m.takeOf(p, msg.Xfer); t != nil {
			t.onAbort(m, msg)
		} else {
			m.disown(p, msg.Xfer)
		}
	case *MsgEndAck:
		if t := m.takeOf(p, msg.Xfer); t != nil {
			t.onEndAck(m)
		}
	case *MsgSeek:
		m.seekAsked(p, msg)
	case *MsgFound:
		if t := m.takeOf(p, msg.Xfer); t != nil && t.phase == phaseSeeking {
			t.onFound(m, msg)
		}
	case *MsgSeekParked:
		if t := m.takeOf(p, msg.Xfer); t != nil && t.phase == phaseSeeking {
			t.onSeekParked(msg)
		}
	case *MsgSeekRefuse:
		if t := m.takeOf(p, msg.Xfer); t != nil && t.phase == phaseSeeking {
			t.onSeekRefuse(m, msg)
		}
	case *MsgUnbind:
		m.unbound(p, msg)
	case *MsgUnbindAck:
		m.unbindAcked(p, msg.Bind)
	case *MsgKeyAck:
		if k := m.keyOps[msg.ID]; k != nil && k.peer == p {
			k.answered(m, msg.Cause)
		}
	}
}

// takeOf finds the take that a message of that channel is about.
func (m *Machine) takeOf(p *peer, x XferID) *take {
	if t := m.takes[x]; t != nil && t.asked && (t.peer == p && (p == nil || t.epoch == p.epoch) || m.cfg.Broken.Sender) {
		return t
	}
	return nil
}

func (m *Machine) serveOf(p *peer, x XferID) *serve { return m.serves[legOf(p, x, Producer)] }

func legOf(p *peer, x XferID, end End) Leg {
	if p == nil {
		return Leg{Xfer: x, End: end}
	}
	return Leg{Peer: p.node, Epoch: p.epoch, Xfer: x, End: end}
}

// disown tells a producer that nobody here waits for that transfer (any more), so that it lets go of its blocks.
func (m *Machine) disown(p *peer, x XferID) {
	if t := m.takes[x]; t != nil && t.peer == p && t.phase == phaseCommitting {
		return // it was asked for over an earlier channel, and will say how it ended once it is fenced
	}
	m.send(p, &MsgEnd{Xfer: x, Status: WasCancelled, Cause: because(Cancelled, "node %q has no take of that name: it ended before", m.cfg.Node)})
}
