package pki

import (
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"syscall"
)

// readPrivate reads a private key. It refuses one that everybody on the machine can read: whoever has read it can pose
// as its node, or issue certificates, until the key and its CA are replaced. A group may read it, since its members can
// be chosen, as with Debian's ssl-cert. The mode that counts is that of the file that is read, not of one that may have
// taken its place. A FIFO is not waited for.
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

// encrypted says whether a PEM file begins with a private key that needs a passphrase.
func encrypted(text []byte) bool {
	block, _ := pem.Decode(text)
	return block != nil && (block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "")
}
