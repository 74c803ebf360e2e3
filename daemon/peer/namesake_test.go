package peer

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/internal/damper"
)

// TestTwoDaemonsOfOneNameAreNoticed: each ends the other's channel whenever it connects, for ever. That a node was
// restarted, or several times, is nothing to warn of.
func TestTwoDaemonsOfOneNameAreNoticed(t *testing.T) {
	cl := newCluster(t)
	a, id := cl.node("a", func(c *Config) { c.Streams = 0 }), cl.identity("b")
	comes := func(incarnation uint64) (from string) {
		r := rawDial(t, a.addr, id, alpnControl).meet("b", func(h *peerpb.Hello) { h.Incarnation = incarnation })
		return r.conn.LocalAddr().String()
	}
	problem := func() string {
		t.Helper()
		all, _ := a.Snapshot()
		if len(all) != 1 || all[0].Node != "b" {
			t.Fatalf("%+v", all)
		}
		return all[0].Problem
	}
	for incarnation := range uint64(2 * maxRuns) {
		comes(incarnation)
		comes(incarnation) // its channel broke
	}
	a.calm()
	if p, all := problem(), a.Namesakes(); p != "" || len(all) != 0 {
		t.Errorf("of restarts: %q, %q", p, all)
	}
	comes(100)
	other, one := comes(101), comes(100)
	a.warns(fmt.Sprintf("peer=b address=%s other=%s", one, other))
	if p := problem(); !strings.Contains(p, fmt.Sprintf("two daemons have its name, at %s and at %s", other, one)) {
		t.Errorf("problem %q", p)
	}
	if all := a.Namesakes(); len(all) != 1 || !strings.HasPrefix(all[0], `node "b": two daemons`) {
		t.Errorf("%q", all)
	}
	began := time.Now()
	for range 100 {
		comes(101)
		comes(100)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n, most := len(a.logged), 8*(2+int(time.Since(began)/damper.Gap)); n > most {
		t.Errorf("%d warnings, want %d at most", n, most)
	}
}

// TestNotAllNodesAreRememberedForEver that were met once.
func TestNotAllNodesAreRememberedForEver(t *testing.T) {
	conn, err := net.Dial("tcp", rawListener(t, func(net.Conn) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := &Manager{met: map[string]*history{}}
	for i := range maxLost + 1 {
		m.meet(&channel{node: fmt.Sprint(i), incarnation: 1, tcp: conn.(*net.TCPConn)})
	}
	if h := m.met[fmt.Sprint(maxLost)]; len(m.met) != maxLost || h == nil {
		t.Errorf("%d are remembered, the last one: %v", len(m.met), h != nil)
	}
	for i := range uint64(2 * maxRuns) {
		m.meet(&channel{node: fmt.Sprint(maxLost), incarnation: i + 2, tcp: conn.(*net.TCPConn)})
	}
	if h := m.met[fmt.Sprint(maxLost)]; len(h.runs) != maxRuns || h.runs[maxRuns-1].incarnation != 2*maxRuns+1 {
		t.Errorf("%+v", h.runs)
	}
}
