package peer

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func prefixes(in ...string) (out []netip.Prefix) {
	for _, s := range in {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// What a hint may lead to, without dialing any of it.
func TestHintsLeadOnlyWherePeersAllowSays(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	nodes := map[string]string{"b": "192.0.2.7:7650"}
	for _, c := range []struct {
		allow string
		hint  string
		want  string // addresses, or part of the error
	}{
		{"10.0.0.0/8", "10.1.2.3:7650", "10.1.2.3:7650"},
		{"10.0.0.0/8", "11.1.2.3:7650", `not inside peers.allow of node "a" (10.0.0.0/8)`},
		{"10.0.0.0/8", "192.0.2.7:7650", "not inside peers.allow"}, // the address of a configured peer is no permission
		{"10.0.0.0/8", "b", "192.0.2.7:7650"},
		{"", "b", "192.0.2.7:7650"},
		{"", "10.1.2.3:7650", `not inside peers.allow of node "a" (none)`},
		{"", "some.name.invalid:7650", "not inside peers.allow"}, // and is not looked up
		{"10.0.0.0/8", "[::ffff:10.1.2.3]:7650", "10.1.2.3:7650"},
		{"10.0.0.0/8", "[::ffff:11.1.2.3]:7650", "not inside peers.allow"},
		{"::ffff:10.0.0.0/104", "10.1.2.3:7650", "10.1.2.3:7650"},
		{"::ffff:10.0.0.0/104", "11.1.2.3:7650", "not inside peers.allow"},
		{"2001:db8::/32", "[2001:db8::5]:7650", "[2001:db8::5]:7650"},
		{"2001:db8::/32", "[2001:db9::5]:7650", "not inside peers.allow"},
		{"fe80::/10", "[fe80::1%lo]:7650", "not inside peers.allow"},
		{"0.0.0.0/0", "[::1]:7650", "not inside peers.allow"},
		{"127.0.0.0/8", "localhost:7650", "127.0.0.1:7650"},
		{"10.0.0.0/8", "localhost:7650", "not inside peers.allow"}, // a name that resolves outside
		{"10.0.0.0/8", "10.1.2.3", "not known here"},
		{"10.0.0.0/8", "10.1.2.3:0", "port of 1 to 65535"},
		{"10.0.0.0/8", "10.1.2.3:99999", "port of 1 to 65535"},
		{"10.0.0.0/8", "10.1.2.3:ssh", "port of 1 to 65535"},
		{"0.0.0.0/0", ":7650", "port of 1 to 65535"},
		{"10.0.0.0/8", "", "not known here"},
	} {
		allow := []netip.Prefix(nil)
		if c.allow != "" {
			allow = prefixes(c.allow)
		}
		a.Reload(nodes, allow)
		got, refused := "", true
		if target, err := a.resolve(c.hint); err != nil {
			got = err.Error()
		} else if addrs, err := a.addresses(t.Context(), target); err != nil {
			got = err.Error()
		} else {
			got, refused = strings.Join(addrs, " "), false
		}
		if wantsError := strings.Contains(c.want, " "); refused != wantsError || !strings.Contains(got, c.want) { // errors name the address, too
			t.Errorf("allow %q, hint %q: %s, want %s", c.allow, c.hint, got, c.want)
		}
	}
}

// TestANameThatCannotBeLookedUpIsNoRefusal: the resolver may be back soon.
func TestANameThatCannotBeLookedUpIsNoRefusal(t *testing.T) {
	a := newCluster(t).node("a", func(c *Config) {
		c.lookUp = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no name server answers") }
	})
	a.Reload(map[string]string{"b": "b.example:7650"}, nil)
	a.Dial("b")
	ev := wait[transfer.DialFailed](a, nil)
	if ev.Final || !strings.Contains(ev.Cause.Text, `look up "b.example": no name server answers`) {
		t.Errorf("%+v", ev)
	}
}

func TestAHintOutsideAllowIsDeniedAtOnceAndNobodyIsDialed(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	a.Reload(nil, prefixes("10.0.0.0/8"))
	fails(t, a, b.addr, transfer.Denied, "peers.allow", `node "a"`, b.addr)
	a.Reload(nil, nil)
	fails(t, a, b.addr, transfer.Denied, "peers.allow")
	if _, st := b.Snapshot(); st.Opened+st.Refused != 0 {
		t.Errorf("b was dialed: %+v", st)
	}
}

// TestAHintOutsideAllowHoldsUpNobodyElse: a client that is refused an address knows nothing of who is there, so the
// node that the configuration has at that address is dialed at once, and nothing is said of it. The client's own
// attempts still have pauses: each may look up a name.
func TestAHintOutsideAllowHoldsUpNobodyElse(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", func(c *Config) { c.DialMax = time.Hour }), cl.node("b", nil)
	a.Reload(map[string]string{"b": b.addr}, prefixes("10.0.0.0/8"))
	began := time.Now()
	for range 3 {
		fails(t, a, b.addr, transfer.Denied, "peers.allow")
	}
	if took := time.Since(began); took < firstWait/2+firstWait {
		t.Errorf("three refusals within %s: no pauses", took)
	}
	if all, _ := a.Snapshot(); len(all) != 1 || all[0].Problem != "" {
		t.Errorf("%+v, want no problem of b", all)
	}
	a.Manager.mu.Lock()
	resting := a.pace[b.addr]
	a.Manager.mu.Unlock()
	if resting != nil {
		t.Errorf("b has to wait until %s, for another pause of %s after that", resting.until, resting.wait)
	}
	met(a, b)
}

// TestAWrongAddressOfOneNodeHoldsUpNoOther: the address of a node that is gone may be another one's by now, which is
// configured with it, too. That one is dialed at once, and nothing is said of it.
func TestAWrongAddressOfOneNodeHoldsUpNoOther(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		a := cl.node("a", change)
		a.cfg.DialMax = time.Hour
		b := cl.node("b", change)
		a.Reload(map[string]string{"b": b.addr, "gone": b.addr}, nil)
		began := time.Now()
		for range 3 {
			fails(t, a, "gone", transfer.Denied, `node "b" answers there, not "gone"`)
		}
		if took := time.Since(began); took < firstWait/2+firstWait {
			t.Errorf("three failures within %s: no pauses", took)
		}
		problems := map[string]string{}
		all, _ := a.Snapshot()
		for _, p := range all {
			problems[p.Node] = p.Problem
		}
		if problems["b"] != "" || !strings.Contains(problems["gone"], `node "b" answers there`) {
			t.Errorf("problems %q, want one of the node that is gone alone", problems)
		}
		a.Manager.mu.Lock()
		if held := a.paces(target{b.addr, "b"}); len(held) != 0 {
			t.Errorf("b has to wait: %+v", *held[0])
		}
		a.Manager.mu.Unlock()
		met(a, b)
	})
}

// TestAnOddNameHoldsUpNobody: a client chooses its hints, and none of them is a word for something else here.
func TestAnOddNameHoldsUpNobody(t *testing.T) {
	cl := newCluster(t)
	a, b := cl.node("a", nil), cl.node("b", nil)
	for _, hint := range []string{"forbidden " + b.addr, b.addr + " forbidden"} {
		a.Dial(hint)
		wait(a, func(e transfer.DialFailed) bool { return e.Hint == hint })
	}
	a.Manager.mu.Lock()
	if all := a.paces(target{addr: b.addr}); len(all) != 0 {
		t.Errorf("those who name %s have to wait: %+v", b.addr, *all[0])
	}
	a.Manager.mu.Unlock()
}

// A long list is cut short: the error travels.
func TestARefusalShowsSomeOfTheNetworks(t *testing.T) {
	a := newCluster(t).node("a", nil)
	var allow []netip.Prefix
	for i := range byte(maxShown + 3) {
		allow = append(allow, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 16))
	}
	a.Reload(nil, allow)
	fails(t, a, "11.1.2.3:7650", transfer.Denied, "(10.0.0.0/16, 10.1.0.0/16", "10.7.0.0/16, 3 more)")
}

func TestAHintInsideAllowFindsTheNodeAndItsNameJoinsTheSameChannel(t *testing.T) {
	eachMode(t, func(t *testing.T, cl *cluster, change func(*Config)) {
		a, b := cl.node("a", change), cl.node("b", change)
		a.Dial(b.addr)
		up := wait(a, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 })
		if up.Node != "b" || up.Hints[0] != b.addr {
			t.Fatalf("%+v", up)
		}
		// Other words for the same node, now that the channel is open, from both ends: it stays.
		_, port, _ := strings.Cut(b.addr, ":")
		a.knows(b)
		b.knows(a)
		for n, hints := range map[*node][]string{a: {"localhost:" + port, "[::ffff:127.0.0.1]:" + port, "b", b.addr}, b: {a.addr, "a"}} {
			for _, hint := range hints {
				n.Dial(hint)
				again := wait(n, func(e transfer.PeerUp) bool { return len(e.Hints) == 1 && e.Hints[0] == hint })
				if again.Epoch != up.Epoch {
					t.Errorf("%s, %q: another channel", n.cfg.Node, hint)
				}
			}
		}
		if _, st := a.Snapshot(); st.Opened != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// A name and an address that lead to the same place are two questions: who answers has to be right for the name alone.
func TestAHintThatIsDialedAlreadyDoesNotAnswerForAName(t *testing.T) {
	cl := newCluster(t)
	a, evil := cl.node("a", nil), cl.node("evil", nil)
	a.Reload(map[string]string{"b": evil.addr}, a.cfg.Allow)
	a.Dial(evil.addr)
	a.Dial("b")
	up := wait(a, func(e transfer.PeerUp) bool { return len(e.Hints) > 0 })
	failed := wait[transfer.DialFailed](a, nil)
	if up.Node != "evil" || len(up.Hints) != 1 || up.Hints[0] != evil.addr || failed.Hint != "b" || !failed.Final {
		t.Errorf("%+v %+v", up, failed)
	}
}

func TestManyAddressesAreNotDialedAtOnce(t *testing.T) {
	cl := newCluster(t)
	a := cl.node("a", nil)
	refused := func(node string, again bool, addr string) bool {
		t.Helper()
		a.Manager.mu.Lock()
		clear(a.dialing)
		for i := range maxDialing {
			a.dialing[target{addr: string(rune('A' + i)), node: node}] = &dial{again: again}
		}
		a.Manager.mu.Unlock()
		a.Dial(addr)
		ev := wait[transfer.DialFailed](a, nil)
		return !ev.Final && ev.Cause.Reason == transfer.Quota
	}
	const fresh, failed, other = "127.0.0.1:9", "127.0.0.1:9", "127.0.0.2:9" // where nobody listens
	if refused("down", false, fresh) {
		t.Error("configured peers count")
	}
	if refused("", false, failed) {
		t.Error("one that failed before is kept waiting by those that did not")
	}
	if !refused("", true, failed) {
		t.Error("one more than the limit is dialed again")
	}
	if !refused("", false, other) {
		t.Error("one more than the limit is dialed")
	}
	if refused("", true, other) {
		t.Error("one that did not fail is kept waiting by those that did, and rest")
	}
	// Configured peers are not kept waiting by hints.
	b := cl.node("b", nil)
	a.knows(b)
	met(a, b)
}

func TestFailuresOfManyAddressesAreForgotten(t *testing.T) {
	a := newCluster(t).node("a", nil)
	a.Reload(map[string]string{"b": "b:1", "gone": "b:1"}, nil)
	a.Manager.mu.Lock()
	defer a.Manager.mu.Unlock()
	gone := target{"b:1", "gone"}
	a.slower(gone, wrongNode("b", "gone"))
	a.slower(target{addr: "b:1"}, errNobody)
	for i := range 8 * maxPaced {
		a.slower(target{addr: string(rune(i + 0x10000))}, errNobody)
	}
	if len(a.pace) > maxPaced || a.pace["b:1"] == nil || a.pace[gone.mistaken()] == nil {
		t.Errorf("%d kept; those of configured ones: %v, %v", len(a.pace), a.pace["b:1"], a.pace[gone.mistaken()])
	}
}
