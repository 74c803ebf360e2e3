package daemon

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/sys/systest"
)

// TestANodeWithoutIPv6: the default address, all of the node, is all of those that there are, whoever opens the port.
func TestANodeWithoutIPv6(t *testing.T) {
	const inside = "KVPIPE_TEST_WITHOUT_IPV6"
	if os.Getenv(inside) == "" {
		again := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v") // what it does to the process cannot be undone
		again.Env = append(os.Environ(), inside+"=1")
		out, err := again.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	systest.RefuseFamily(t, syscall.AF_INET6)
	n := start(t, "a", t.TempDir(), func(*config.Config) {})
	own, err := n.listenTCP("listen", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if a := own.Addr().(*net.TCPAddr); !a.IP.Equal(net.IPv4zero) {
		t.Errorf("listens at %v", a)
	}
	passed, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	if _, err := peerSocket(passed, "[::]:0"); err != nil {
		t.Error(err)
	}
}
