package daemon

import (
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// What peers may have of this node for their measurements: benchServes at a time, each of at most benchBytes, for
// benchLease after the peer's last word.
const (
	benchServes = 2
	benchLease  = 10 * time.Second
)

// How many requests of peers may be under way at a time, of all and of one peer. A peer that measures has one.
const (
	benchRequests   = 64
	benchRequestsOf = 8
)

// benchName names a measurement of a peer.
type benchName struct {
	node string
	benchSpec
}

// benchServed is a measurement of a peer: a session that offers blocks to it.
type benchServed struct {
	name   benchName
	x      *benchSession
	blocks []layout.BlockList
	lease  *time.Timer
	user   uint64
	offers map[string]uint64 // live offers: user_data by key
	// refused holds why an offer was not accepted, until the peer has been told.
	refused map[uint64]transfer.Cause
}

// asked answers a peer's watch or drop of one of the daemons' own keys, and returns false for any other key. It does
// not block. These messages bypass the driver's queue, so nothing but the bounds here holds up a peer that asks without
// end.
func (b *bencher) asked(node string, epoch uint64, msg *transfer.MsgKey) bool {
	key := string(msg.Key)
	if len(key) < len(benchPrefix) || key[:len(benchPrefix)] != benchPrefix {
		return false
	}
	reply := func(c transfer.Cause) { b.peers.Send(node, epoch, &transfer.MsgKeyAck{ID: msg.ID, Cause: c}) }
	switch {
	case !b.peers.Secure(node, epoch):
		reply(transfer.Cause{Reason: transfer.Denied, Text: fmt.Sprintf("node %q measures with authenticated peers alone; this channel is insecure", b.node)})
		return true
	case b.stop.Err() != nil:
		reply(transfer.Cause{Reason: transfer.Unavailable, Text: errStopping.Error()})
		return true
	case key == benchHello:
		reply(transfer.Cause{})
		return true
	}
	if cause := b.enter(node); cause.Reason != transfer.OK {
		reply(cause)
		return true
	}
	go func() {
		defer b.wg.Done()
		b.serve(node, key, msg, func(c transfer.Cause) { b.leave(node); reply(c) })
	}()
	return true
}

// enter counts a request as under way until leave, or returns why it cannot be. A stopping daemon waits for requests
// that entered.
func (b *bencher) enter(node string) transfer.Cause {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return transfer.Cause{Reason: transfer.Unavailable, Text: errStopping.Error()}
	case b.requests[node] >= benchRequestsOf || b.underWay >= benchRequests:
		return transfer.Cause{Reason: transfer.Busy, Text: fmt.Sprintf(
			"node %q answers %d requests of a peer at a time for measurements, %d of all: try again later", b.node, benchRequestsOf, benchRequests)}
	}
	b.requests[node]++
	b.underWay++
	b.wg.Add(1)
	return transfer.Cause{}
}

func (b *bencher) leave(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	if b.requests[node]--; b.requests[node] == 0 {
		delete(b.requests, node)
	}
}

// serve does what a peer asked for, and replies, perhaps after it has returned.
func (b *bencher) serve(node, key string, msg *transfer.MsgKey, reply func(transfer.Cause)) {
	spec, err := parseBench(key)
	if err != nil {
		reply(transfer.Cause{Reason: transfer.Invalid, Text: err.Error()})
		return
	}
	name := benchName{node, spec}
	if msg.Drop {
		b.mu.Lock()
		if s := b.serving[name]; s != nil {
			b.dismiss(s)
		}
		b.mu.Unlock()
		reply(transfer.Cause{})
		return
	}
	s, cause := b.admit(name)
	if cause.Reason != transfer.OK {
		reply(cause)
		return
	}
	user := b.offer(s, key, msg.Token)
	// This runs after the event that brings the offer, so the machine has judged it.
	b.to.driver.Post(func() {
		b.mu.Lock()
		cause := s.refused[user]
		delete(s.refused, user)
		b.mu.Unlock()
		reply(cause)
	})
}

// admit finds a peer's measurement or begins it. Measurements begin one after the other, so that however many are asked
// for at a time, memory is mapped only for those that are served.
func (b *bencher) admit(name benchName) (*benchServed, transfer.Cause) {
	b.making.Lock()
	defer b.making.Unlock()
	b.mu.Lock()
	s := b.serving[name]
	full := len(b.serving) >= benchServes
	if s != nil {
		s.lease.Reset(b.lease)
	}
	b.mu.Unlock()
	switch {
	case s != nil:
		return s, transfer.Cause{}
	case full:
		return nil, transfer.Cause{Reason: transfer.Busy, Text: fmt.Sprintf("node %q serves %d measurements already, the limit: try again later", b.node, benchServes)}
	case !b.allowed(name.transport):
		return nil, transfer.Cause{Reason: transfer.Unavailable, Text: fmt.Sprintf("transport %q is not on the allow-list of node %q (transports)", name.transport, b.node)}
	}
	x, err := b.open(name.benchSpec, name.blocks, false)
	if err != nil {
		return nil, transfer.Cause{Reason: transfer.Unavailable, Text: err.Error()}
	}
	s = &benchServed{name: name, x: x, blocks: shuffled(0, name.blocks), offers: map[string]uint64{}, refused: map[uint64]transfer.Cause{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.lease = time.AfterFunc(b.lease, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.dismiss(s)
	})
	if b.closed { // meanwhile
		b.forget(s)
		return nil, transfer.Cause{Reason: transfer.Unavailable, Text: errStopping.Error()}
	}
	b.serving[name] = s
	return s, transfer.Cause{}
}

// dismiss ends a measurement. The caller holds mu.
func (b *bencher) dismiss(s *benchServed) {
	if b.serving[s.name] == s {
		delete(b.serving, s.name)
		b.forget(s)
	}
}

// forget gives everything of a measurement back, in a goroutine. The caller holds mu.
func (b *bencher) forget(s *benchServed) {
	s.lease.Stop()
	b.wg.Add(1)
	go func() { defer b.wg.Done(); b.close(s.x) }()
}

// offer offers the blocks under a key and returns the offer's user_data. A repeated request changes nothing.
func (b *bencher) offer(s *benchServed, key string, token []byte) (user uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if user := s.offers[key]; user != 0 {
		return user
	}
	s.user++
	s.offers[key] = s.user
	b.to.Event(transfer.Submit{Session: s.x.id, UserData: s.user, Op: &transfer.OfferOp{
		Key: []byte(key), Token: token, Lease: transfer.Time(b.lease), Consumers: 1, Sealed: true, Blocks: s.blocks,
	}})
	return s.user
}

// ended forgets an offer. If it failed at age 0, it may have been refused; refused then keeps the reason.
func (b *bencher) ended(c transfer.Complete) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.serving {
		if s.x.id != c.Session {
			continue
		}
		for key, user := range s.offers { // few: a peer takes what it asked for before it asks for more
			if user == c.UserData {
				delete(s.offers, key)
			}
		}
		if c.Status == transfer.Failed && c.Age == 0 {
			s.refused[c.UserData] = transfer.Cause{Reason: c.Reason, Text: c.Text}
		}
	}
}
