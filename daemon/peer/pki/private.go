package pki

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// readPrivate reads a key. One that everybody on the machine can read is refused: whoever did is its node, or makes nodes, until it is
// replaced with its CA. A group may read it: it can be made of those who shall, as Debian's ssl-cert is. The mode is that of what is read,
// not of what may have taken its place; a FIFO is not waited for.
func readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file (%v)", path, st.Mode())
	}
	if mode := st.Mode().Perm(); mode&0o004 != 0 {
		return nil, fmt.Errorf("%s: a private key that everybody can read (mode %04o): chmod o-r it", path, mode)
	}
	return io.ReadAll(f)
}
