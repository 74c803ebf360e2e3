package sys

// IovecBytes returns how many bytes iov covers.
func IovecBytes(iov []Iovec) int {
	n := 0
	for i := range iov {
		n += iov[i].Size()
	}
	return n
}

// Advance drops the first n bytes of iov, as after a short read or write, and
// returns what remains. It changes the first remaining piece in place. It
// panics when iov covers fewer than n bytes.
func Advance(iov []Iovec, n int) []Iovec {
	for len(iov) > 0 && n >= iov[0].Size() {
		n -= iov[0].Size()
		iov = iov[1:]
	}
	if n > 0 {
		iov[0].skip(n)
	}
	return iov
}
