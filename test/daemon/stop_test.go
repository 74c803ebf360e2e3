package daemon

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// waiter is a client whose take has got the first half of an offer, and waits for the second, which nobody makes.
func waiter(t *testing.T, socket string) *sessiontest.Client {
	t.Helper()
	c, err := sessiontest.Dial(socket, sessiontest.Options{Engine: "e", TPWorld: 1, PPWorld: 1, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	region, _, err := c.Alloc(3 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	err = c.SetLayout([]layout.View{{
		Region: region, NumBlocks: 3, BlockStride: 4096, TokenStride: 256, HeadStride: 256, ContentBytes: 256, Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "m"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Submit(&transfer.OfferOp{
		Key: []byte("k"), Token: make([]byte, 16), Consumers: 1, Lease: transfer.Time(2 * patience), Blocks: []layout.BlockList{{NTokens: 16, IDs: []uint32{0}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Submit(&transfer.TakeOp{
		Key: []byte("k"), Token: make([]byte, 16), TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: transfer.Time(2 * patience), Blocks: []layout.BlockList{{NTokens: 32, IDs: []uint32{1, 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inFlight waits until the daemon has something to drain.
func inFlight(t *testing.T, admin string) {
	t.Helper()
	eventually(t, "the take is in flight", func() bool { return strings.Contains(ctl(t, admin, "transfers"), "moving") })
}

// TestStopDrains: SIGTERM lets what is in flight end, for as long as drain_wait says, then ends sessions with a reason.
func TestStopDrains(t *testing.T) {
	dir := tempDir(t)
	file := write(t, filepath.Join(dir, "k.toml"), "metrics = \"off\"\n[advanced]\ndrain_wait = \"200ms\"\n")
	p := dev(t, dir, "a", "--config", file)
	home := filepath.Join(dir, "a")
	c := waiter(t, filepath.Join(home, "kvpiped.sock"))
	inFlight(t, filepath.Join(home, "admin.sock"))
	p.stop()
	p.await("still in flight")
	cause, err := c.Bye()
	if err != nil || cause.Reason != transfer.Unavailable || !strings.Contains(cause.Text, "connect again when it is back") {
		t.Errorf("the client hears %+v, %v", cause, err)
	}
	if left := files(t, home); left != "kvpiped.sock.lock kvpiped.sock.state" {
		t.Errorf("left behind: %s", left)
	}
}

// TestSecondSignal: who cannot wait says so twice.
func TestSecondSignal(t *testing.T) {
	dir := tempDir(t)
	file := write(t, filepath.Join(dir, "k.toml"), "metrics = \"off\"\n[advanced]\ndrain_wait = \"1h\"\n")
	p := dev(t, dir, "a", "--config", file)
	home := filepath.Join(dir, "a")
	waiter(t, filepath.Join(home, "kvpiped.sock"))
	inFlight(t, filepath.Join(home, "admin.sock"))
	p.signal(syscall.SIGTERM)
	p.await("msg=stopping")
	p.signal(syscall.SIGINT)
	if code := p.end(); code != 1 || !strings.Contains(p.log(), "stopped at once by a second signal") {
		t.Errorf("exit code %d:\n%s", code, p.log())
	}
	dev(t, dir, "a").stop() // what it left does not hinder the next one
}

// TestKilledClient: a client that dies is noticed; what it had comes back.
func TestKilledClient(t *testing.T) {
	dir := tempDir(t)
	p := dev(t, dir, "a")
	home := filepath.Join(dir, "a")
	waiter(t, filepath.Join(home, "kvpiped.sock")).Kill()
	eventually(t, "everything came back", func() bool {
		return strings.Contains(ctl(t, filepath.Join(home, "admin.sock"), "status"), "0 B registered") &&
			strings.Contains(ctl(t, filepath.Join(home, "admin.sock"), "status"), "holds_exclusive 0")
	})
	p.stop()
}

// TestAReaderOfTheLogThatGoesAway takes nobody with it.
func TestAReaderOfTheLogThatGoesAway(t *testing.T) {
	dir := tempDir(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "kvpiped"), devArgs(dir, "a", "--metrics", "off")...)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("kvpiped ended with %v", err)
		}
	}()
	_ = w.Close()
	for lines := bufio.NewScanner(r); lines.Scan() && !strings.Contains(lines.Text(), "msg=ready"); {
	}
	_ = r.Close()
	for range 2 { // each is a record
		c, err := sessiontest.Dial(filepath.Join(dir, "a", "kvpiped.sock"), sessiontest.Options{Engine: "e"})
		if err != nil {
			t.Fatal(err)
		}
		c.Kill()
	}
}
