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
// returns what remains; the first remaining piece is changed in place. It
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

// AppendIovec appends b to iov, merging it with the last piece when the memory
// is adjacent, as the blocks of a sequence often are. An empty b adds nothing.
// A merged piece keeps only the first of two Go objects alive: append memory
// that the caller holds elsewhere, as mappings are.
func AppendIovec(iov []Iovec, b []byte) []Iovec {
	if len(b) == 0 {
		return iov
	}
	if n := len(iov); n > 0 && iov[n-1].endsAt(b) {
		iov[n-1].Len += uint64(len(b))
		return iov
	}
	return append(iov, MakeIovec(b))
}
