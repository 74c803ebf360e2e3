package pki

import (
	"fmt"
	"io/fs"
)

// private refuses a key that everybody on the machine can read: whoever did is its node, or makes nodes, until it is replaced with its CA.
// A group may read it: it can be made of those who shall, as Debian's ssl-cert is.
func private(path string, st fs.FileInfo) error {
	if mode := st.Mode().Perm(); mode&0o004 != 0 {
		return fmt.Errorf("%s: a private key that everybody can read (mode %04o): chmod o-r it", path, mode)
	}
	return nil
}
