package tcp

import (
	"fmt"
	"runtime/debug"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// The functions below read memory of clients, which may be truncated at any moment. System calls then return EFAULT,
// but code of this process gets a signal, which these functions turn into an error.

// sumFront adds the first n bytes of iov to s.
func sumFront(s *sums, iov []sys.Iovec, n int) (err error) {
	defer catch(&err, debug.SetPanicOnFault(true))
	for i := 0; n > 0; i++ {
		b := iov[i].Bytes()
		b = b[:min(len(b), n)]
		s.add(b)
		n -= len(b)
	}
	return nil
}

// gather appends up to n bytes from the front of iov to dst, and returns what remains of iov. It is an ordinary copy:
// the bytes should stay in the cache for the send that follows.
func gather(dst []byte, iov []sys.Iovec, n int) (_ []byte, rest []sys.Iovec, err error) {
	defer catch(&err, debug.SetPanicOnFault(true))
	for n > 0 && len(iov) > 0 {
		b := iov[0].Bytes()
		b = b[:min(len(b), n)]
		dst = append(dst, b...)
		iov = sys.Advance(iov, len(b))
		n -= len(b)
	}
	return dst, iov, nil
}

// catch turns a memory fault into an error. Any other panic goes on.
func catch(err *error, before bool) {
	debug.SetPanicOnFault(before)
	r := recover()
	if r == nil {
		return
	}
	f, ok := r.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(r)
	}
	*err = fmt.Errorf("memory at %#x is not accessible", f.Addr())
}
