package daemon

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestStrangersPassNoDescriptors: who has not said HELLO cannot send the daemon a descriptor, which could take as long to close as it likes.
func TestStrangersPassNoDescriptors(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	n.join("e", 1) // so the daemon serves its socket
	stranger, err := sys.DialSeqpacket(t.Context(), n.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if err := sys.PassRights(stranger, true); err != nil {
		t.Skipf("this kernel always passes descriptors: %v", err)
	}
	fd, err := sys.MemfdCreate("any", 4096, sys.MemfdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if err := sys.Send(stranger, []byte("x"), fd); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("sent a descriptor: %v", err)
	}
}
