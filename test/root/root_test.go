package root

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvpipe/kvpipe/test/cluster"
)

var root = flag.String("root", "", "a root file system with engine and library in /opt/kvpipe; needs root, in a mount namespace of its own: test/rigs/root.sh")

// TestRestart: the daemon is restarted, killed and upgraded on the host; engines behind a bind mount of its directory go on. They keep
// their memory and see another epoch each time.
func TestRestart(t *testing.T) {
	if *root == "" {
		t.Skip("-root is not given: test/rigs/root.sh runs it, in a mount namespace of its own")
	}
	c := cluster.New(t)
	n := c.Node("host").Start()
	inside := filepath.Join(*root, "run/kvpipe")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "--bind", filepath.Dir(n.Socket), inside).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", inside).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	t.Setenv("KVPIPE_BIN", "/opt/kvpipe/bin")
	there := &cluster.Node{T: t, Name: "inside", Socket: "/run/kvpipe/" + filepath.Base(n.Socket)}
	decode := cluster.NewEngine(t, "decode", there, nil)
	prefill := cluster.NewEngine(t, "prefill", there, func(word string, rest []string) {
		if word == "offer" {
			decode.Tell("take %s %s", rest[0], rest[1])
		}
	})
	decode.Root, prefill.Root = *root, *root
	decode.Env = []string{"LD_LIBRARY_PATH=/opt/kvpipe/lib"} // $ORIGIN needs /proc
	prefill.Env = decode.Env
	decode.Start(0)
	prefill.Start(0)
	flowing := func() { decode.Waits("ok", decode.Count("ok")+20) }
	flowing()
	epochs := map[uint32]bool{n.Epoch(): true}
	for i := range 10 {
		if i%2 == 0 {
			n.Kill()
		} else {
			n.Stop()
		}
		n.Start()
		flowing()
		epochs[n.Epoch()] = true
	}
	if len(epochs) != 11 {
		t.Errorf("%d epochs of 11 daemons", len(epochs))
	}
	prefill.Quiet()
	decode.Quiet()
	cluster.Clean(t, n, 2, cluster.Rest{})
}
