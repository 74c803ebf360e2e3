package session

import (
	"errors"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

const ctlHeader = 32

// message is a received control message. body lies in the receive buffer; whoever gets it closes fds.
type message struct {
	kind uint16
	seq  uint32
	body []byte
	fds  []int
	lost error // why its descriptors are missing
}

// receive waits for the next message. An error ends the connection; the caller closes the message's fds in that case,
// too.
func receive(conn *net.UnixConn, buf []byte) (message, error) {
	n, fds, lost := sys.Recv(conn, buf, 1)
	if lost != nil && !errors.Is(lost, sys.ErrNoDescriptor) {
		return message{fds: fds}, lost
	}
	m, err := parse(buf[:n])
	m.fds, m.lost = fds, lost
	return m, err
}

// parse judges a datagram's header.
func parse(b []byte) (message, error) {
	var h ring.Ctl
	body, err := ring.Decode(b, &h, "control message")
	switch {
	case err != nil:
		return message{}, invalid("%v", err)
	case h.Magic != ring.Magic:
		return message{}, invalid("control message: magic is %#x: must be %#x", h.Magic, ring.Magic)
	case h.Flags != 0:
		return message{}, invalid("control message: flags are %#x: must be 0", h.Flags)
	case uint64(h.Len) != uint64(len(body)):
		return message{}, invalid("control message: len is %d, %d bytes follow the header", h.Len, len(body))
	}
	return message{kind: h.Type, seq: h.Seq, body: body}, nil
}

// send sends one message. The caller makes sure that one goroutine sends at a time.
func send(conn *net.UnixConn, kind uint16, seq uint32, body []byte, fds ...int) error {
	return sys.Send(conn, packed(kind, seq, body), fds...)
}

func packed(kind uint16, seq uint32, body []byte) []byte {
	b := make([]byte, 0, ctlHeader+len(body))
	b = ring.Append(b, &ring.Ctl{Magic: ring.Magic, Type: kind, Len: uint32(len(body)), Seq: seq})
	return append(b, body...)
}

// sendLast sends what is the last message of a connection. A client that has no room for it has wait to make some; one that has is told
// although this node stands still for as long.
func sendLast(conn *net.UnixConn, wait time.Duration, kind uint16, seq uint32, body []byte) {
	_ = conn.SetDeadline(time.Now().Add(wait))
	if err := send(conn, kind, seq, body); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = sys.SendNow(conn, packed(kind, seq, body))
	}
}

// ackBody is the body of ACK and of the daemon's BYE.
func ackBody(value uint64, c transfer.Cause) []byte {
	text := clip(c.Text, 4096)
	return append(ring.Append(nil, &ring.Ack{Reason: uint32(c.Reason), TextLen: uint32(len(text)), Value: value}), text...)
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}

// clip makes what a client is told printable UTF-8 on one line, since another node may have said it and engines write it
// to their logs, and cuts it to at most n bytes, but not inside a character. An error may have a line for each address of
// a node.
func clip(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\n", "; ")
	s = strings.Map(printable, s) // none of them copies anything where nothing is wrong
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
