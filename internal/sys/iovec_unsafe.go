package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Iovec is one piece of memory for scattered input and output: the kernel's
// struct iovec. Build a slice of them once and reuse it: nothing here
// allocates. An Iovec keeps Go memory alive; memory of Mmap must stay mapped
// for as long as a call uses it.
type Iovec unix.Iovec

// MaxIovecs is the most pieces that one call takes (the kernel's UIO_MAXIOV).
const MaxIovecs = 1024

// MakeIovec returns the piece of memory that b covers.
func MakeIovec(b []byte) Iovec {
	var v Iovec
	v.Set(b)
	return v
}

// Set makes v cover b.
func (v *Iovec) Set(b []byte) {
	v.Base = unsafe.SliceData(b)
	v.Len = uint64(len(b))
}

// Size returns how many bytes v covers.
func (v *Iovec) Size() int { return int(v.Len) }

// Bytes returns the memory that v covers.
func (v *Iovec) Bytes() []byte { return unsafe.Slice(v.Base, int(v.Len)) }

// skip drops the first n bytes of v, n <= Size.
func (v *Iovec) skip(n int) {
	v.Len -= uint64(n)
	if v.Len == 0 {
		// Never let Base point past the memory: the collector would take it
		// for a pointer into the next object.
		v.Base = nil
		return
	}
	v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
}

// Recvmsg receives into iov from the socket fd. It does not block the thread,
// whatever the socket's mode. It returns 0 and errno 0 at the end of the
// stream, and EAGAIN when there is nothing yet. When memory of iov is not
// there, it returns EFAULT or a short count: bad memory is never a signal. It
// uses at most MaxIovecs pieces. It allocates nothing, and so can be called
// inside syscall.RawConn.Read.
func Recvmsg(fd uintptr, iov []Iovec) (int, unix.Errno) {
	return socketIO(unix.SYS_RECVMSG, fd, iov, unix.MSG_DONTWAIT)
}

// Sendmsg sends iov to the socket fd, by the same rules as Recvmsg. A peer that
// is gone gives EPIPE and no signal. With more set, the kernel may wait for the
// next call before it sends a part of a segment. A short count because of bad
// memory leaves the stream in the middle of what was promised.
func Sendmsg(fd uintptr, iov []Iovec, more bool) (int, unix.Errno) {
	flags := unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if more {
		flags |= unix.MSG_MORE
	}
	return socketIO(unix.SYS_SENDMSG, fd, iov, flags)
}

func socketIO(trap, fd uintptr, iov []Iovec, flags int) (int, unix.Errno) {
	if len(iov) > MaxIovecs {
		iov = iov[:MaxIovecs]
	}
	hdr := unix.Msghdr{Iov: (*unix.Iovec)(unsafe.SliceData(iov))}
	hdr.SetIovlen(len(iov))
	for {
		n, _, errno := unix.Syscall(trap, fd, uintptr(unsafe.Pointer(&hdr)), uintptr(flags))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}
