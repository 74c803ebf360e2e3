package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/damper"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// control answers control messages until the session ends. It returns the client's BYE, which is answered last of all,
// or nil.
func (s *session) control(buf []byte) (bye *message) {
	var told damper.Damper
	for {
		m, err := receive(s.conn, buf)
		if err != nil {
			s.end(lostCause(err))
			s.srv.exits.shut(m.fds, s.who.UID)
			if errors.Is(err, sys.ErrTruncated) || errors.Is(err, sys.ErrEmpty) {
				s.srv.exits.discard(s.conn, s.who.UID)
			}
			return nil
		}
		s.count.control.Add(1)
		if m.kind == ring.CtlBye && len(m.body) == 0 && len(m.fds) == 0 {
			s.endBy(byOwner, transfer.Cause{Reason: transfer.Closed, Text: "closed by its owner"})
			return &message{seq: m.seq}
		}
		value, later, err := s.work(&m)
		s.srv.exits.shut(m.fds, s.who.UID)
		if no := lack(err); no != "" && told.Due() {
			s.log.Warn(no+" for what a session asks", "error", err)
		}
		if later {
			continue
		}
		if err := s.ack(m.seq, value, causeOf(err)); err != nil {
			s.end(transfer.Cause{Reason: transfer.PeerGone, Text: fmt.Sprintf("an answer could not be sent: %v", err)})
			return nil
		}
	}
}

// listen runs control until the session or its connection ends, and hands the result to lastWord.
func (s *session) listen(buf []byte) {
	bye := s.control(buf)
	s.coming = assembly{} // nobody completes it any more, and memory of the session may stay for long
	s.hearing.Lock()
	defer s.hearing.Unlock()
	s.last <- bye
}

// lastWord waits until the session ends and returns what control returned. Closing descriptors that the client sent may
// hold control up for as long as the client likes. Such a connection is left behind (deaf), and its session ends
// without it.
func (s *session) lastWord() (bye *message) {
	select {
	case bye = <-s.last:
		return bye
	case <-s.ending:
	}
	select {
	case bye = <-s.last:
		return bye
	case <-time.After(byeTimeout):
	}
	s.hearing.Lock()
	defer s.hearing.Unlock()
	select {
	case bye = <-s.last:
	default:
		s.deaf = true
	}
	return bye
}

// work answers a message, or refuses it once lastWord has given the connection up (deaf).
func (s *session) work(m *message) (value uint64, later bool, err error) {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if s.deaf {
		return 0, false, refuse(transfer.Closed, "the session has ended")
	}
	return s.answer(m)
}

// answer handles one message. If later is true, another goroutine sends the answer.
func (s *session) answer(m *message) (value uint64, later bool, err error) {
	if m.lost != nil {
		return 0, false, m.lost
	}
	if len(m.fds) != 0 && m.kind != ring.CtlRegister && m.kind != ring.CtlRevalidate {
		return 0, false, invalid("control message of type %d came with a descriptor: only REGISTER (%d) and REVALIDATE (%d) have one", m.kind, ring.CtlRegister, ring.CtlRevalidate)
	}
	switch m.kind {
	case ring.CtlRegister:
		value, err = s.register(m)
		return value, false, err
	case ring.CtlUnregister:
		later, err = s.takeBack(m, false)
		return 0, later, err
	case ring.CtlInvalidate:
		later, err = s.takeBack(m, true)
		return 0, later, err
	case ring.CtlRevalidate:
		return 0, false, s.revalidate(m)
	case ring.CtlLayout:
		return 0, false, s.takeLayout(m.body)
	case ring.CtlPing:
		return 0, false, empty(m, "ping")
	case ring.CtlBye:
		return 0, false, empty(m, "bye")
	}
	return 0, false, invalid("control message of type %d is not known, or not a client's to send", m.kind)
}

func empty(m *message, name string) error {
	if len(m.body) != 0 {
		return invalid("%s: body of %d bytes: must be empty", name, len(m.body))
	}
	return nil
}

// ack answers a request. Any goroutine may call it.
func (s *session) ack(seq uint32, value uint64, c transfer.Cause) error {
	return s.send(ring.CtlAck, seq, ackBody(value, c))
}

// send sends a message while the session lives. Any goroutine may call it. It waits at most Config.Patience for a
// client that does not read.
func (s *session) send(kind uint16, seq uint32, body []byte, fds ...int) error {
	s.out.Lock()
	defer s.out.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.srv.cfg.Patience)); err != nil {
		return err
	}
	select {
	case <-s.ending: // end set its deadline first, and we have just moved it
		_ = s.conn.SetDeadline(past)
	default:
	}
	return send(s.conn, kind, seq, body, fds...)
}

// lostCause says why no more messages come.
func lostCause(err error) transfer.Cause {
	var r *Refusal
	switch {
	case errors.Is(err, io.EOF):
		return transfer.Cause{Reason: transfer.PeerGone, Text: "its process ended, or closed the connection, without closing the session"}
	case errors.As(err, &r):
		return transfer.Cause(*r)
	case errors.Is(err, sys.ErrTruncated):
		return transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("%v: the limits are %d bytes and one descriptor", err, ring.CtlMax)}
	case errors.Is(err, sys.ErrEmpty):
		return transfer.Cause{Reason: transfer.Invalid, Text: fmt.Sprintf("control message: %v: must begin with a header of %d bytes", err, ctlHeader)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transfer.Cause{Reason: transfer.Timeout, Text: err.Error()} // end already has its own cause
	}
	return transfer.Cause{Reason: transfer.PeerGone, Text: err.Error()}
}
