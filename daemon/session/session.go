package session

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// session is one client's connection. Locks, in the order in which they are taken: in, mu. Neither is held while a message
// is sent.
type session struct {
	srv     *Server
	log     *slog.Logger
	told    bool // its opening is in the log for everybody
	conn    *net.UnixConn
	out     sync.Mutex              // held to send on conn
	process atomic.Pointer[process] // nil: not visible
	count   counters

	// What it is, and may.
	id       transfer.SessionID
	who      identity
	secret   [32]byte
	abi      uint32 // of the ring protocol, as agreed
	since    time.Time
	credits  int    // completions that the machine may owe at a time
	reserve  uint32 // further completions, for refusals and NOPs
	inflight int    // most unreleased operations

	// What it has.
	mem      *memory.Space
	geometry ring.Geometry
	fds      descriptors
	ringC    []byte
	ringD    []byte
	charged  uint64 // bytes accounted for the rings

	in      sync.Mutex // the submission ring and all up to the next blank line
	sq      *ring.Submissions
	record  []byte // scratch
	stopped bool   // nothing is taken in any more

	outdated outdated // submissions about earlier processes

	mu       sync.Mutex // the completion ring and all up to the next blank line
	cq       *ring.Completions
	words    *ring.Words
	layers   *ring.Layers
	ops      map[uint64]opened // user_data of operations that are not released
	open     [numSizes]int     // how many of each size
	load     load              // of them
	next     load              // of the submission that waits until there is room for it
	works    int64             // how much the machine has to look at for that
	ahead    ahead             // of the machine
	result   []byte            // scratch
	progress uint64            // furthest seen
	wanted   bool              // the machine has no credit left
	unrung   bool              // in the server's list of that name
	unread   bool              // the client is gone and collects nothing more; changed under both locks
	gone     bool              // unmapped; changed under both locks
	removals map[layout.RegionID]*removal
	jobs     sync.WaitGroup // goroutines that answer late

	// What the watch looks after.
	watched atomic.Uint64 // the progress that the driver waits for
	stalled atomic.Bool   // the ring is not read until completions are consumed, or operations released
	resume  chan struct{} // they have been
	eager   atomic.Bool   // pressed, but not for long yet
	waiting atomic.Int64  // since when it is watched, stalled or eager
	ringing atomic.Int64  // when the wake-up that is under way began; 0: none is
	rang    int64         // ringing, at the watch's last look
	ticked  uint64        // submissions and completions, at the watch's last look

	apart atomic.Bool   // a goroutine of its own wakes the client
	bell  chan struct{} // makes that goroutine do so
	woken chan struct{} // closed when it has ended; nil: it was not started

	// Control messages.
	coming  assembly       // a layout's pieces so far
	layout  *layout.Layout // nil: not set yet; both belong to the control goroutine
	hearing sync.Mutex     // held while a control message is worked off
	last    chan *message  // what control returned
	deaf    bool           // control messages are no longer handled

	// The end. Its channels are closed in this order, each at most once. run does what stands between them:
	//
	//	ending        by end, whoever calls it first
	//	  |           wait for the last control message, or handle no more of them (deaf); read out what was published, if that
	//	  |           outlives the session (unread); take nothing in any more (stopped; a breach of protocol stops at once); find
	//	  |           out whether the process is dead; tell the client of the end; report SessionClosed
	//	left          by Server.leave
	//	  |           the driver closes one of the next two, perhaps before left; once the server is closed, neither is waited for
	//	  +-- drained    by SessionDrained
	//	  +-- orphaned   by SessionOrphaned; drained follows, perhaps last of all
	//	  |           unmap the rings (gone), and the memory, or with orphaned alone all but keep; answer the client's BYE
	//	over
	//	parted        after which, if only orphaned is closed, rest waits for drained and gives the memory back
	endOnce  sync.Once
	ender    ender // both are set before ending is closed
	cause    transfer.Cause
	ending   chan struct{}
	dead     bool          // the process is gone; set before left is closed
	left     chan struct{} // its rank is free again
	drain    sync.Once
	drained  chan struct{} // the driver says that nothing touches its memory
	orphan   sync.Once
	orphaned chan struct{}            // the driver says that only keep has to stay
	keep     transfer.SessionOrphaned // set before orphaned is closed
	over     chan struct{}            // everything is unmapped and closed, except what the dead leave behind
	parted   chan struct{}            // nobody needs the connection any more
	ended    time.Time                // when only memory was left
}

// counters are read by Sessions while others count.
type counters struct {
	submissions, refusals, completions, wakeups, rings, control atomic.Uint64
}

// newSession makes the rings and whatever else a session needs. It takes over who.pidfd in every case.
func (v *Server) newSession(conn *net.UnixConn, who identity, h *ring.Hello) (*session, error) {
	sizes, err := ringSizes(h)
	if err != nil {
		_ = sys.Close(who.pidfd)
		return nil, err
	}
	s := &session{
		srv: v, who: who, conn: conn, since: time.Now(), secret: newSecret(), log: v.cfg.Log,
		mem: memory.NewSpace(v.pool, who.Owner), ops: map[uint64]opened{}, removals: map[layout.RegionID]*removal{},
		credits: int(sizes.CQ), reserve: sizes.CQ, inflight: min(v.inflight(), int(sizes.CQ)/transfer.MostCompletions),
		bell: make(chan struct{}, 1), resume: make(chan struct{}, 1), ending: make(chan struct{}), left: make(chan struct{}),
		drained: make(chan struct{}), orphaned: make(chan struct{}), over: make(chan struct{}),
		parted: make(chan struct{}), last: make(chan *message, 1),
	}
	s.fds.none()
	// First, before anybody hears of the session: a client that cannot be watched is refused, and may ask again as who
	// it was.
	alive, err := openProcess(who.pidfd)
	if err != nil {
		return nil, err
	}
	if alive != nil {
		s.process.Store(alive)
	}
	// The session may write as many completions by itself as the machine may: see pump.go.
	sizes.CQ *= 2
	if err := s.makeRings(sizes); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

func (s *session) makeRings(sizes ring.Sizes) (err error) {
	if s.geometry, err = ring.NewGeometry(sizes); err != nil {
		return invalid("hello: %v", err)
	}
	g := &s.geometry
	if err := s.srv.rings.take(s.who.Owner, g.Memory(), s.srv.ringLimit()); err != nil {
		return err
	}
	s.charged = g.Memory()
	if s.ringC, s.ringD, err = s.fds.make(g); err != nil {
		if err = fmt.Errorf("rings of %d and %d bytes: %w", g.CBytes, g.DBytes, err); lack(err) == "" {
			err = refuse(transfer.Quota, "%v", err)
		}
		return err
	}
	s.sq = ring.NewSubmissions(g, s.ringC, s.ringD)
	s.cq = ring.NewCompletions(g, s.ringC, s.ringD)
	s.words = ring.NewWords(s.ringC, s.ringD)
	s.layers = ring.NewLayers(g, s.ringD)
	s.words.Beat(s.srv.beat())
	return nil
}

// ender is who ended a session, where that makes a difference.
type ender uint8

const (
	byOther   ender = iota // anybody else
	byOwner                // the client, with its BYE
	byAnother              // another connection, which resumes it
)

// end ends the session. Only the first call and its cause count. It does not block.
func (s *session) end(cause transfer.Cause) { s.endBy(byOther, cause) }

func (s *session) endBy(who ender, cause transfer.Cause) {
	s.endOnce.Do(func() {
		s.ender, s.cause = who, cause
		close(s.ending)
		_ = s.conn.SetDeadline(past) // whoever waits for the client gives up
	})
}

// past is a deadline that wakes whoever waits.
var past = time.Unix(1, 0)

// run is the life of an opened session. It calls leave once another session may take its place.
func (s *session) run(leave func()) {
	var helpers sync.WaitGroup
	helpers.Go(s.read)
	alive := s.process.Load()
	alive.watch(s.end)
	if s.srv.busy != nil {
		s.srv.busy.wake()
	}

	bye := s.lastWord()
	if s.sentLast() {
		s.readOut()
	}
	s.stopTaking()
	helpers.Wait()
	died := s.died()
	s.dead = died
	alive.stop()
	s.say()
	s.srv.cfg.Events(transfer.SessionClosed{Session: s.id, Cause: s.cause, Died: died, Progress: s.lastProgress()})
	s.srv.leave(s) // a successor comes only after its end
	due, untold := s.told, 0
	if !due {
		due, untold = s.srv.comings.due(s.who.UID)
	}
	s.tell(due, untold, "session closed", "reason", s.cause.Reason.String(), "why", s.cause.Text, "age", time.Since(s.since).Round(time.Millisecond))

	select {
	case <-s.drained:
	case <-s.orphaned:
	case <-s.srv.forced:
	}
	s.forgetRemovals()
	s.jobs.Wait()
	s.unmap()
	if s.leaves() {
		s.shrink()
		s.srv.bury(s)
		leave()
		s.answerBye(bye)
		close(s.over)
		s.rest()
		return
	}
	s.mem.Close()
	s.srv.forget(s)
	leave() // before the client is told: it may come back at once
	s.answerBye(bye)
	close(s.over)
	close(s.parted)
}

// answerBye tells a client that closed its session that nothing is written to its memory any more.
func (s *session) answerBye(bye *message) {
	if bye != nil {
		sendLast(s.conn, byeTimeout, ring.CtlAck, bye.seq, ackBody(0, transfer.Cause{}))
	}
}

// sentLast reports whether what the client had published outlives it: it died, or it closed its end of a pipe or lookup
// buffer, whose items can still be received.
func (s *session) sentLast() bool {
	return s.cause.Reason == transfer.PeerGone || s.who.Role == transfer.Endpoint && s.ender == byOwner
}

// stopTaking ends the reading of submissions. None is reported after it.
func (s *session) stopTaking() {
	s.in.Lock()
	s.stopped = true
	s.in.Unlock()
	_ = s.fds.sqFile.Close() // wakes the reader
}

// say tells the client that its session has ended: in the rings, and by a BYE unless the client sent one.
func (s *session) say() {
	s.mu.Lock()
	s.words.Close(uint32(s.cause.Reason))
	s.signal()
	s.mu.Unlock()
	if s.ender == byOwner {
		return
	}
	s.out.Lock()
	defer s.out.Unlock()
	sendLast(s.conn, byeTimeout, ring.CtlBye, 0, ackBody(0, s.cause))
}

// rest gives the memory back once nobody takes what the session left behind.
func (s *session) rest() {
	close(s.parted)
	select {
	case <-s.drained:
	case <-s.srv.forced:
	}
	s.mem.Close()
	s.srv.forget(s)
	s.log.Debug("memory of an ended session given back", "age", time.Since(s.ended).Round(time.Millisecond))
}

// unmap ends all that the daemon shares with the client, except the memory that the client registered.
func (s *session) unmap() {
	s.in.Lock()
	s.mu.Lock()
	s.gone = true
	s.cq.Forget() // memory of the session may stay for long, and megabytes of a large queue and many items would with it
	s.record, s.result, s.ops = nil, nil, nil
	s.mu.Unlock()
	s.in.Unlock()
	s.hush()
	s.outdated.unmapped()
	s.discard()
}

// discard frees the descriptors and rings of a session that is not, or no longer, served.
func (s *session) discard() {
	s.fds.close()
	if p := s.process.Load(); p != nil {
		_ = p.file.Close()
	}
	for _, m := range []*[]byte{&s.ringC, &s.ringD} {
		if *m != nil {
			_ = sys.Munmap(*m)
			*m = nil
		}
	}
	s.srv.rings.giveBack(s.who.Owner, s.charged)
	s.charged = 0
}

func (v *Server) leave(s *session) {
	v.mu.Lock()
	v.dismiss(s)
	v.engines.leave(s, v.state.awaits(&s.who))
	v.mu.Unlock()
	v.saveState()
	close(s.left)
}

func (v *Server) forget(s *session) {
	if _, orphan := v.orphans.LoadAndDelete(s.id); orphan {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.change(nil, s)
}

// SessionDrained says that nothing touches the session's memory any more. The memory is unmapped now, and the client's
// BYE is answered.
func (v *Server) SessionDrained(id transfer.SessionID) {
	if s := v.find(id); s != nil {
		s.drain.Do(func() { close(s.drained) })
	}
}

// EndSession ends a session with a reason that its client sees. SessionClosed follows.
func (v *Server) EndSession(e transfer.EndSession) {
	if s := v.find(e.Session); s != nil {
		s.end(e.Cause)
	}
}
