package peer

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
)

func at(nic, ip string, mbps int) Address {
	return Address{IP: netip.MustParseAddr(ip), Mbps: mbps, NIC: nic}
}

// full are all pairs of some NICs here with some there, in rail order.
func full(mine, theirs []Address) (out []Path) {
	for i := range theirs {
		for j := range mine {
			out = append(out, Path{From: mine[j], To: theirs[(i+j)%len(theirs)]})
		}
	}
	return out
}

func TestSpread(t *testing.T) {
	a0, a1, a2, a3 := at("a0", "10.0.0.1", 100000), at("a1", "10.0.1.1", 100000), at("a2", "10.0.2.1", 25000), at("a3", "10.0.3.1", 0)
	b0, b1 := at("b0", "10.0.0.2", 100000), at("b1", "10.0.1.2", 100000)
	home := ends{a0.IP, b0.IP}
	rails := []Path{{From: a0, To: b0}, {From: a1, To: b1}}
	near := []Path{{From: a0, To: b0}, {From: a1, To: b1, Near: true}}
	tests := []struct {
		name  string
		paths []Path
		n     int
		want  string
	}{
		{"no path", nil, 2, ""},
		{"the channel's own path alone", rails[:1], 2, ""},
		{"one path beside the channel's", rails[1:], 2, "a1>b1 a1>b1"},
		{"two rails", rails, 2, "a0>b0 a1>b1"},
		{"two rails, four links", rails, 4, "a0>b0 a1>b1 a0>b0 a1>b1"},
		{"a single link goes to the memory's NUMA node", near, 1, "a1>b1"},
		{"but speed decides before it", near, 2, "a1>b1 a0>b0"},
		{"every NIC reaches every other: rails are paired", full([]Address{a0, a1}, []Address{b0, b1}), 2, "a0>b0 a1>b1"},
		{"in proportion to speed", []Path{{From: a0, To: b0}, {From: a2, To: b1}}, 5, "a0>b0 a0>b0 a0>b0 a2>b1 a0>b0"},
		{"what is slow at the other end is slow", []Path{{From: a0, To: at("b0", "10.0.0.2", 25000)}, {From: a1, To: b1}}, 5, "a1>b1 a1>b1 a1>b1 a0>b0 a1>b1"},
		{"unknown speed counts as the slowest known", []Path{{From: a0, To: b0}, {From: a2, To: b0}, {From: a3, To: b0}}, 6, "a0>b0 a0>b0 a0>b0 a0>b0 a2>b0 a3>b0"},
		{"all unknown: evenly", []Path{{From: a3, To: at("b0", "10.0.0.2", 0)}, {From: at("a4", "10.0.4.1", 0), To: at("b4", "10.0.4.2", 0)}}, 3, "a3>b0 a4>b4 a3>b0"},
		{"one NIC here, two there", []Path{{From: a0, To: b0}, {From: a0, To: b1}}, 2, "a0>b0 a0>b1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range spread(tt.paths, tt.n, home) {
				got = append(got, p.From.NIC+">"+p.To.NIC)
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func TestAddressesThatNobodyCanMeanAreMalformed(t *testing.T) {
	good := []Address{at("eth0", "10.0.0.1", 100), at("eth1", "fd00::1", 0)}
	got, err := decodeAddresses(encodeAddresses(good))
	if err != nil || len(got) != 2 || got[0] != good[0] || got[1] != good[1] {
		t.Errorf("%v, %v", got, err)
	}
	if all, err := decodeAddresses(nil); all != nil || err != nil {
		t.Errorf("older peers say nothing: %v, %v", all, err)
	}
	for _, bad := range []Address{at("eth0", "0.0.0.0", 0), at("eth0", "224.0.0.1", 0), at("eth0", "fe80::1", 0), at(strings.Repeat("x", 65), "10.0.0.1", 0), {NIC: "eth0"}} {
		if _, err := decodeAddresses(encodeAddresses([]Address{bad})); !isMalformed(err) {
			t.Errorf("%v passes", bad)
		}
	}
	many := encodeAddresses(good)
	for range maxAddresses {
		many.List = append(many.List, many.List[0])
	}
	if _, err := decodeAddresses(many); !isMalformed(err) {
		t.Errorf("%d addresses pass", len(many.List))
	}
}

// A name that is no UTF-8, or commands a terminal, which the kernel allows, and a speed beyond all sense keep nobody away.
func TestOddNICsAreSaid(t *testing.T) {
	b, err := proto.Marshal(encodeAddresses([]Address{at("eth\xff\x1b[2J", "10.0.0.1", 1<<40)}))
	if err != nil {
		t.Fatal(err)
	}
	in := new(peerpb.Addresses)
	if err := proto.Unmarshal(b, in); err != nil {
		t.Fatal(err)
	}
	if got, err := decodeAddresses(in); err != nil || got[0] != at("eth??[2J", "10.0.0.1", maxMbps) {
		t.Errorf("%v, %v", got, err)
	}
}

// A peer that names ever other addresses at which nobody answers does not fill this node's memory.
func TestRoughPathsAreBounded(t *testing.T) {
	var r rough
	for i := range 3 * maxRough {
		r.mark("mad", ends{remote: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})})
	}
	if n := len(r.paths); n == 0 || n > maxRough {
		t.Errorf("%d are remembered", n)
	}
}

// A path that led a peer's links nowhere is left alone for that peer: one that says another's addresses are its own takes no way from the
// other, and gives none back that was found to lead nowhere.
func TestAPathIsRoughToOnePeerAlone(t *testing.T) {
	var r rough
	to := []Path{{From: at("eth0", "10.0.0.1", 1), To: at("eth0", "10.0.0.2", 1)}}
	open := func(node string) bool { return len(r.without(node, slices.Clone(to))) > 0 }
	r.mark("mad", to[0].ends())
	if open("mad") || !open("b") {
		t.Errorf("after a link to mad found no way: open to mad %v, to b %v", open("mad"), open("b"))
	}
	r.mark("b", to[0].ends())
	r.smooth("mad", to[0].ends())
	r.forgetTo("mad", []Address{to[0].To})
	for i := range maxRough + 1 {
		r.mark("mad", ends{remote: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})})
	}
	if !open("mad") || open("b") {
		t.Errorf("after a link to b found no way, and mad's did: open to mad %v, to b %v", open("mad"), open("b"))
	}
}
