package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// TestAnInterfaceThatIsNotThereYet: so does one that is to listen at an address of an interface which comes up later.
func TestAnInterfaceThatIsNotThereYet(t *testing.T) {
	n := start(t, "a", t.TempDir(), func(c *config.Config) { c.Metrics = "[fe80::1%kvnone0]:7651" })
	const want = `metrics: this node has no interface "kvnone0" yet`
	if s := get[admin.Status](n, "status"); !slices.ContainsFunc(s.Warnings, func(s string) bool { return strings.HasPrefix(s, want) }) {
		t.Errorf("warnings are %q: none says %q", s.Warnings, want)
	}
	for _, says := range []string{"nobody can connect there until it has", "unreachable=[metrics]"} {
		eventually(t, "the log says "+says, func() bool { return strings.Contains(n.log.String(), says) })
	}
}

// TestAddressesThatAreNotThereYet: a daemon that is started before the network is up serves its own node, and says what it waits for.
func TestAddressesThatAreNotThereYet(t *testing.T) {
	for name, addr := range map[string]string{"IPv4": "192.0.2.1", "IPv6": "2001:db8::1"} { // of no machine: RFC 5737, RFC 3849
		t.Run(name, func(t *testing.T) {
			n := start(t, "a", t.TempDir(), func(c *config.Config) { c.Metrics = netip.AddrPortFrom(netip.MustParseAddr(addr), 0).String() })
			want := "metrics: no interface of this node has the address " + addr + " yet"
			waits := func(s string) bool { return strings.HasPrefix(s, want) }
			if s := get[admin.Status](n, "status"); !slices.ContainsFunc(s.Warnings, waits) {
				t.Errorf("warnings are %q: none says %q", s.Warnings, want)
			}
			for _, says := range []string{want, "unreachable=[metrics]"} { // the second at the end of its start, which looks at the addresses
				eventually(t, "the log says "+says, func() bool { return strings.Contains(n.log.String(), says) })
			}
			n.early[0].addr = netip.MustParseAddr("127.0.0.1") // now it is there
			if s := get[admin.Status](n, "status"); slices.ContainsFunc(s.Warnings, waits) {
				t.Errorf("it is there, but warnings are %q", s.Warnings)
			}
		})
	}
}
