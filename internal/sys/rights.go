package sys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxFDs is the most descriptors that one message can carry (the kernel's
// SCM_MAX_FD).
const MaxFDs = 253

// ErrTruncated says that a received message did not fit the buffer, or carried
// more descriptors than were allowed. The message is lost; the connection is
// best closed.
var ErrTruncated = errors.New("message truncated")

// ErrEmpty says that a received message has descriptors but not one byte. The
// message is lost; the connection is best closed.
var ErrEmpty = errors.New("message has descriptors and no bytes")

// ErrNoDescriptor says that a received message came without its descriptors,
// because this process may open no more files. It wraps EMFILE.
var ErrNoDescriptor = fmt.Errorf("no room for the descriptor of a message: %w", syscall.EMFILE)

// Send sends data and fds as one message on a SEQPACKET connection. data must
// not be empty: a message of no bytes looks like the end of the connection.
// The descriptors stay the caller's. It blocks while the peer's queue is full;
// the connection's write deadline bounds that.
func Send(conn *net.UnixConn, data []byte, fds ...int) error {
	if len(data) == 0 {
		return errors.New("send message: it is empty: a message needs at least one byte")
	}
	if len(fds) > MaxFDs {
		return fmt.Errorf("send message: %d descriptors: the limit is %d", len(fds), MaxFDs)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(data, oob, nil)
	if err != nil {
		return fmt.Errorf("send message of %d bytes and %d descriptors: %w", len(data), len(fds), err)
	}
	if n != len(data) {
		return fmt.Errorf("send message: sent %d of %d bytes", n, len(data))
	}
	return nil
}

// SendNow sends data as one message if there is room for it at this moment,
// also when the connection's write deadline has passed.
func SendNow(conn *net.UnixConn, data []byte) error {
	return Control(conn, func(fd int) error { return unix.Send(fd, data, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
}

// Recv receives one message of a SEQPACKET connection into buf, with at most
// maxFDs descriptors, which are close-on-exec. The descriptors that came become
// the caller's, even when Recv fails. A message that is longer than buf, or has
// more descriptors, gives ErrTruncated. The end of the connection, and a
// message of nothing at all, give io.EOF itself. A peer that closes with
// messages unread gives ECONNRESET. With ErrNoDescriptor alone, n is the
// message's length, and the connection is as good as before.
//
// Closing a stranger's descriptor, with CloseAll or Discard or by closing the
// connection while one is still queued, may block the thread for as long as the
// stranger likes: a TCP socket lingers, a file of FUSE is flushed. So Recv
// leaves a message queued that has more descriptors than it returns. It closes
// one only where the table of files has no room for it.
func Recv(conn *net.UnixConn, buf []byte, maxFDs int) (n int, fds []int, err error) {
	if maxFDs < 0 || maxFDs > MaxFDs {
		return 0, nil, fmt.Errorf("receive message: %d descriptors: the limit is %d", maxFDs, MaxFDs)
	}
	// CmsgSpace rounds up to 8 bytes, which may leave room for one descriptor
	// too many; parseRights's count catches it.
	oob := make([]byte, unix.CmsgSpace(max(maxFDs, 1)*4))
	n, oobn, flags, err := peek(conn, buf, oob)
	if err != nil {
		return 0, nil, fmt.Errorf("receive message: %w", err)
	}
	if n == 0 && oobn == 0 { // a message of no bytes looks like the end
		return 0, nil, io.EOF
	}
	fds, err = parseRights(oob[:oobn])
	// There was room in oob, but none in the table of files.
	scarce := flags&unix.MSG_CTRUNC != 0 && len(fds) == 0 && maxFDs > 0
	if flags&unix.MSG_CTRUNC == 0 || scarce {
		err = errors.Join(err, Discard(conn)) // nobody else has it, or wants it
	}
	switch {
	case err != nil:
	case n == 0:
		err = ErrEmpty
	case flags&unix.MSG_TRUNC != 0:
		err = fmt.Errorf("%w: longer than %d bytes", ErrTruncated, len(buf))
	case scarce:
		return n, nil, ErrNoDescriptor
	case flags&unix.MSG_CTRUNC != 0 || len(fds) > maxFDs:
		err = fmt.Errorf("%w: more than %d descriptors", ErrTruncated, maxFDs)
	}
	if err != nil {
		return 0, fds, fmt.Errorf("receive message: %w", err)
	}
	return n, fds, nil
}

// Discard takes the next message, if there is one, and closes its descriptors.
func Discard(conn *net.UnixConn) error {
	return Control(conn, func(fd int) error {
		for {
			_, _, _, _, err := unix.Recvmsg(fd, nil, nil, unix.MSG_DONTWAIT)
			switch err {
			case nil, unix.EAGAIN:
				return nil
			case unix.EINTR:
				continue
			}
			return fmt.Errorf("discard message: %w", err)
		}
	})
}

// Peek is Recv, but leaves the message where it is and takes no descriptor, so
// that nothing of the peer's is closed. laden says whether the message brings
// any. At the end of the connection it returns no bytes.
func Peek(conn *net.UnixConn, buf []byte) (n int, laden bool, err error) {
	n, _, flags, err := peek(conn, buf, nil)
	if err != nil {
		return 0, false, fmt.Errorf("look at message: %w", err)
	}
	return n, flags&unix.MSG_CTRUNC != 0, nil
}

// peek waits for the next message and copies it, and those of its descriptors
// for which oob has room. They stay queued, too.
func peek(conn *net.UnixConn, buf, oob []byte) (n, oobn, flags int, err error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	var inner error
	err = rc.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, inner = unix.Recvmsg(int(fd), buf, oob, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if inner != unix.EINTR {
				break
			}
		}
		return inner != unix.EAGAIN
	})
	if err == nil {
		err = inner
	}
	return n, oobn, flags, err
}

// PassRights sets whether the other ends of a unix socket may send descriptors
// (SO_PASSRIGHTS, Linux 6.16). If they may not, they are told EPERM.
// Connections have the setting of their listener.
func PassRights(c syscall.Conn, on bool) error {
	v := 0
	if on {
		v = 1
	}
	return Control(c, func(fd int) error { return setsockopt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, v, "SO_PASSRIGHTS") })
}

// Laden reports whether descriptors are queued at this end of a unix
// connection; the end of the connection closes them. Where that cannot be told
// (Linux before 5.8), it returns true.
func Laden(conn *net.UnixConn) bool {
	laden := true
	_ = Control(conn, func(fd int) error {
		info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
		laden = err != nil || !bytes.Contains(info, []byte("\nscm_fds: 0\n"))
		return nil
	})
	return laden
}

// parseRights returns the descriptors of all control messages in oob. They are
// installed in this process already, so it returns those that it found even
// with an error.
func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control messages: %w", err)
	}
	var all []int
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			return all, fmt.Errorf("parse descriptors: %w", err)
		}
		all = append(all, fds...)
	}
	return all, nil
}
