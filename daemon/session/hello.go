package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// handle serves a connection from HELLO to its end.
func (v *Server) handle(n *newcomer) {
	conn, cred := n.conn, n.cred
	buf := make([]byte, ctlHeader+ring.CtlMax)
	m, err := v.greet(n, buf)
	if err != nil {
		v.cfg.Log.Debug("connection without HELLO", "pid", cred.PID, "uid", cred.UID, "error", err)
		return
	}
	if sys.HungUp(conn) { // it waited in the service manager's socket until its client gave up, and the client comes again
		v.cfg.Log.Debug("connection gave up before it was answered", "pid", cred.PID, "uid", cred.UID)
		return
	}
	var s *session
	leave, err := v.enter(cred.UID)
	if err == nil {
		if s, err = v.open(conn, cred, m); err != nil {
			leave() // before the client is told: it may come back at once
		}
	}
	if err != nil {
		cause := causeOf(err)
		v.sayRefused(cred, cause, lack(err) != "")
		sendLast(conn, byeTimeout, ring.CtlAck, m.seq, ackBody(0, cause))
		return
	}
	go func() {
		defer v.served.Done()
		s.run(leave)
	}()
	s.listen(buf)
	<-s.parted
}

// sayRefused logs a refusal, but not each time: libraries come again several times a second until they are let in.
func (v *Server) sayRefused(cred sys.Cred, cause transfer.Cause, lacks bool) {
	if !v.refusals.Due(fmt.Sprint(cred.UID, cause.Reason)) {
		return
	}
	level := slog.LevelInfo
	if lacks {
		level = slog.LevelWarn
	}
	v.cfg.Log.Log(context.Background(), level, "session refused", "pid", cred.PID, "uid", cred.UID, "reason", cause.Reason.String(), "why", cause.Text)
}

// open judges a HELLO and makes the session. When it returns, the client's WELCOME is on its way.
func (v *Server) open(conn *net.UnixConn, cred sys.Cred, m message) (*session, error) {
	if m.kind != ring.CtlHello {
		return nil, invalid("the first message has type %d: must be HELLO (1)", m.kind)
	}
	// Versions come first: what else a HELLO has, and how long it is, may differ between them.
	var abi struct{ Min, Max uint32 }
	if _, err := ring.Decode(m.body, &abi, "hello"); err != nil {
		return nil, invalid("%v", err)
	}
	oldest, newest := v.cfg.ABI[0], v.cfg.ABI[1]
	if abi.Min > newest || abi.Max < oldest || abi.Min > abi.Max {
		return nil, refuse(transfer.Incompatible, "the library speaks ring protocol %d to %d, this daemon (%s) %d to %d: use a library and a daemon of neighbouring versions",
			abi.Min, abi.Max, v.cfg.Version, oldest, newest)
	}
	var h ring.Hello
	rest, err := ring.Decode(m.body, &h, "hello")
	if err != nil {
		return nil, invalid("%v", err)
	}
	if len(rest) != 0 {
		return nil, invalid("hello: %d bytes too many", len(rest))
	}
	if h.Features != 0 {
		return nil, refuse(transfer.Incompatible, "features %#x are not known to this daemon (%s)", h.Features, v.cfg.Version)
	}
	who, err := v.identify(conn, cred, &h)
	if err != nil {
		return nil, err
	}
	who.Owner = v.state.owner(back(&h), who.engine())
	if err := v.replace(&h, who); err != nil {
		_ = sys.Close(who.pidfd)
		return nil, err
	}
	s, err := v.newSession(conn, who, &h)
	if err != nil {
		v.forgo(&h, err)
		return nil, err
	}
	s.abi = min(h.ABIMax, newest)
	v.mourn(who)
	_ = conn.SetDeadline(time.Time{}) // from admit on, deadlines are the session's
	err = v.admit(s, &h)
	var rank *occupied
	if errors.As(err, &rank) {
		// A process that was killed and is back at once may be faster than the news of its death.
		wait := leaveTimeout
		if rank.by.leaving() {
			wait = helloTimeout
		}
		select {
		case <-rank.by.left:
			err = v.admit(s, &h)
		case <-time.After(wait):
		case <-v.stop:
		}
	}
	if err != nil {
		s.discard()
		v.forgo(&h, err)
		return nil, err
	}
	v.remember(s)
	due, untold := v.comings.due(s.who.UID)
	s.told = due
	s.tell(due, untold, "session opened", "role", s.who.Role, "owner", s.who.Owner, "pid", s.who.PID, "library", s.who.Library)
	_ = sys.PassRights(conn, true) // older kernels always allow it
	if err := s.welcome(m.seq); err != nil {
		s.end(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("WELCOME could not be sent: %v", err)})
	}
	return s, nil
}

// ringSizes fills in defaults and checks the sizes that the client asked for.
func ringSizes(h *ring.Hello) (ring.Sizes, error) {
	sizes := ring.Sizes{
		SQ: defaultTo(h.SQEntries, defaultSQ), CQ: defaultTo(h.CQEntries, defaultCQ),
		Records: defaultTo(h.ArenaBytes, defaultArena), Layers: defaultTo(h.LayerSlots, defaultLayers),
	}
	for _, f := range []struct {
		name       string
		n, lo, top uint32
	}{
		{"sq_entries", sizes.SQ, 1, maxEntries},
		{"cq_entries", sizes.CQ, 8, maxEntries},
		{"arena_bytes", sizes.Records, 1 << 16, maxArena},
		{"layer_slots", sizes.Layers, 1, maxEntries},
	} {
		if f.n < f.lo || f.n > f.top || bits.OnesCount32(f.n) != 1 {
			return sizes, invalid("hello: %s is %d: must be a power of two from %d to %d", f.name, f.n, f.lo, f.top)
		}
	}
	return sizes, nil
}

func defaultTo(n, def uint32) uint32 {
	if n == 0 {
		return def
	}
	return n
}

// replace ends the session that the client wants to resume, if this daemon still has it. The client's process is the
// same as before, so nothing but this HELLO says that the old connection is lost. A session of an earlier daemon is
// opened anew for a client that has its secret.
func (v *Server) replace(h *ring.Hello, who identity) error {
	old := v.find(transfer.SessionID(h.Session))
	if h.Session == 0 {
		return nil
	}
	if old == nil {
		return v.state.mayResume(back(h), &who)
	}
	if subtle.ConstantTimeCompare(old.secret[:], h.Secret[:]) != 1 || old.who.Owner != who.Owner {
		return refuse(transfer.Denied, "session %#x is not yours to resume", h.Session)
	}
	old.endBy(byAnother, transfer.Cause{Reason: transfer.Closed, Text: "resumed by another connection"})
	select {
	case <-old.left:
		return nil
	case <-time.After(helloTimeout):
		v.state.drop(old.id)
		return refuse(transfer.Busy, "session %#x has not ended yet: try again", h.Session)
	case <-v.stop:
		return refuse(transfer.Unavailable, "the daemon is stopping")
	}
}

// forgo forgets the session of this daemon that a refused client wanted to resume. It keeps it if the refusal is
// Unavailable: then the client may ask the next daemon for it.
func (v *Server) forgo(h *ring.Hello, err error) {
	if id := transfer.SessionID(h.Session); uint32(id>>32) == v.cfg.Epoch && causeOf(err).Reason != transfer.Unavailable {
		v.state.forgo(back(h))
		v.saveState()
	}
}

// admit gives the session its id and its place among the others, also in the state, so that sessions of older instances
// do not come back. It tells the machine before anybody else is admitted. To the machine, too, the newest instance is
// the one that came last, and a scheduler that comes back has to hear of the workers that came in the meantime.
func (v *Server) admit(s *session, h *ring.Hello) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.draining {
		return refuse(transfer.Unavailable, "the daemon is draining and takes no new sessions: connect again after its restart")
	}
	was := back(h)
	if heir := v.state.heir(was); heir != nil && heir.leaving() {
		return &occupied{by: heir, error: refuse(transfer.Busy, "session %#x is back already by another connection, whose end is not over yet: try again", h.Session)}
	}
	if v.state.kept(s, was) {
		return refuse(transfer.Busy, "rank %d of instance %q of engine %q is kept for the session that came after this one and is awaited after a restart: stop this process, or try again",
			s.who.Rank, s.who.Instance, s.who.Engine)
	}
	if err := v.engines.join(s, h.Session != 0); err != nil {
		return err
	}
	v.next++
	s.id = transfer.SessionID(uint64(v.cfg.Epoch)<<32 | uint64(v.next))
	s.log = v.cfg.Log.With("session", fmt.Sprintf("%#x", uint64(s.id)), "engine", s.who.Engine, "instance", s.who.Instance, "rank", int32(s.who.Rank))
	s.apart.Store(v.wary.of(s.who.UID)) // if the server becomes wary of its user later, beware finds the session
	v.change(s, nil)
	var k roster.Known
	if s.who.Role != transfer.Endpoint { // ends of pipes do not come back
		k = v.state.put(s, was, v.engines.Past(s.who.engine()))
	}
	if s.who.Role == transfer.Worker && !k.Resumed {
		v.outdate(&s.who)
	}
	v.served.Add(1) // not draining, so Close has not begun to wait
	v.cfg.Events(transfer.SessionOpened{
		Session: s.id, Engine: s.who.Engine, Instance: s.who.Instance, Owner: s.who.Owner, User: s.who.UID, Role: s.who.Role, Rank: s.who.Rank,
		TPWorld: s.who.TPWorld, PPWorld: s.who.PPWorld, Credits: s.credits, Had: k.Had, Resumed: k.Resumed, Changed: k.Changed,
	})
	v.state.another(&s.who, k)
	return nil
}

// welcome answers HELLO.
func (s *session) welcome(seq uint32) error {
	g := &s.geometry
	w := ring.Welcome{
		ABI: s.abi, Says: ring.SaysGranted | ring.SaysInvalid | ring.SaysAgain, Epoch: s.srv.cfg.Epoch, Session: uint64(s.id), Secret: s.secret,
		RingCBytes: uint64(g.CBytes), RingDBytes: uint64(g.DBytes), Rank: s.who.Rank,
		MaxPinnedBytes: s.srv.pool.Limits().SessionBytes, Ops: ring.Ops,
		MaxIDs: layout.MaxIDs, MaxViews: layout.MaxViews, MaxRegions: maxRegions, MaxInflight: uint32(s.inflight),
	}
	w.NRings = uint32(copy(w.Rings[:], g.Table()))
	copy(w.Node[:], s.srv.cfg.Node)
	copy(w.Instance[:], s.who.Instance)
	copy(w.Advertise[:], s.srv.cfg.Advertise)
	copy(w.Daemon[:], s.srv.cfg.Version)
	err := s.send(ring.CtlWelcome, seq, ring.Append(nil, &w), s.fds.ringC, s.fds.ringD, s.fds.sq, s.fds.cq)
	// The client has its own copies now; ours were only there to be passed on.
	return errors.Join(err, s.fds.closePassed())
}

func newSecret() (secret [32]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}
