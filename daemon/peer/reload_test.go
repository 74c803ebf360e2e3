package peer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// resting is a node that is about to dial b, in an hour, at an address that keeps failing.
func resting(t *testing.T, c *cluster) (a *node, failing string) {
	t.Helper()
	failing = "127.0.0.1:1"
	a = c.node("a", nil)
	a.Reload(map[string]string{"b": failing}, a.cfg.Allow)
	a.Manager.mu.Lock()
	a.pace[failing] = &backoff{wait: time.Hour, until: time.Now().Add(time.Hour), problem: "refused"}
	a.Manager.mu.Unlock()
	a.Dial("b")
	return a, failing
}

// TestACorrectedAddressIsDialedAtOnce: what rests because of the address of before goes there.
func TestACorrectedAddressIsDialedAtOnce(t *testing.T) {
	c := newCluster(t)
	a, failing := resting(t, c)
	b := c.node("b", nil)
	a.Reload(map[string]string{"b": failing, "c": b.addr}, a.cfg.Allow) // of another node
	if all, _ := a.Snapshot(); len(all) != 2 || all[0].State+all[1].State != "dialingdown" && all[0].State+all[1].State != "downdialing" {
		t.Errorf("%+v, want b to be dialed as before", all)
	}
	a.knows(b)
	wait(a, func(e transfer.PeerUp) bool { return e.Node == "b" && slices.Equal(e.Hints, []string{"b"}) })
}

// TestAPeerThatIsTakenOutIsNotDialed: who waits for it hears that.
func TestAPeerThatIsTakenOutIsNotDialed(t *testing.T) {
	a, _ := resting(t, newCluster(t))
	a.Reload(nil, a.cfg.Allow)
	failed := wait[transfer.DialFailed](a, nil)
	if failed.Hint != "b" || !failed.Final || !strings.Contains(failed.Cause.Text, `peer "b" is not known here`) {
		t.Errorf("%+v", failed)
	}
}

// TestANetworkThatIsAllowedIsDialedAtOnce: refusals of before, for which clients rest, count no more once peers.allow
// has the network.
func TestANetworkThatIsAllowedIsDialedAtOnce(t *testing.T) {
	c := newCluster(t)
	a, b := c.node("a", nil), c.node("b", nil)
	a.Reload(nil, prefixes("10.0.0.0/8"))
	fails(t, a, b.addr, transfer.Denied, "peers.allow")
	rests := func() *backoff { return a.pace[forbidden(b.addr)] }
	a.Manager.mu.Lock()
	if rests() == nil {
		t.Fatal("a refused client does not rest")
	}
	rests().until = time.Now().Add(time.Hour)
	a.Manager.mu.Unlock()
	a.Dial(b.addr) // rests while peers.allow changes
	a.Reload(nil, prefixes("127.0.0.0/8"))
	wait(a, func(e transfer.PeerUp) bool { return e.Node == "b" && slices.Equal(e.Hints, []string{b.addr}) })
}
