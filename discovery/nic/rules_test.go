package nic

import (
	"net/netip"
	"slices"
	"testing"
)

func TestRules(t *testing.T) {
	nic := func(name, kind string, addrs ...string) Link {
		l := Link{Name: name, Kind: kind, Up: true}
		for _, a := range addrs {
			l.Addresses = append(l.Addresses, netip.MustParsePrefix(a))
		}
		return l
	}
	rail := nic("ens1", "ethernet", "10.1.0.1/24", "10.1.0.9/24", "fe80::1/64", "fd00::1/64")
	rail.RDMA = &PortRef{"mlx5_0", 1}
	down := nic("ens2", "ethernet", "10.2.0.1/24")
	down.Up = false
	hostBridge := nic("br0", "bridge", "10.3.0.1/24")
	hostBridge.PCI = "0000:17:00.0"
	tests := []struct {
		name  string
		rules Rules
		link  Link
		want  string // why not
	}{
		{"a NIC", Rules{}, rail, ""},
		{"by name", Rules{Allow: []string{"ens1"}}, rail, ""},
		{"by its RDMA device", Rules{Allow: []string{"mlx5_*"}}, rail, ""},
		{"not named", Rules{Allow: []string{"ens2", "eth*"}}, rail, "nic_allow does not name it"},
		{"denied by its RDMA device", Rules{Deny: []string{"mlx5_?"}}, rail, "nic_deny names it"},
		{"allowed and denied", Rules{Allow: []string{"*"}, Deny: []string{"ens1"}}, rail, "nic_deny names it"},
		{"down", Rules{}, down, "down"},
		{"loopback, whatever is allowed", Rules{Allow: []string{"lo"}}, nic("lo", "loopback", "127.0.0.1/8"), "loopback"},
		{"containers' bridge", Rules{}, nic("docker0", "bridge", "172.17.0.1/16"), "a virtual link (bridge); nic_allow can name it"},
		{"that bridge, wanted", Rules{Allow: []string{"docker0"}}, nic("docker0", "bridge", "172.17.0.1/16"), ""},
		{"bridge over a NIC", Rules{}, hostBridge, ""},
		{"tunnel", Rules{}, nic("flannel.1", "vxlan", "10.244.0.0/32"), "a virtual link (vxlan); nic_allow can name it"},
		{"a container's way out", Rules{}, nic("eth0", "veth", "10.244.1.7/24"), ""},
		{"no address", Rules{}, nic("ens3", "ethernet"), "no routable address"},
		{"link-local alone", Rules{}, nic("ens3", "ethernet", "fe80::1/64", "169.254.3.1/16"), "no routable address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rules.Refuses(tt.link); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	want := []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1")}
	if got := (Rules{}).Routable(rail); !slices.Equal(got, want) {
		t.Errorf("routable addresses %v, want %v", got, want)
	}
	if got := (Rules{Deny: []string{"*"}}).Routable(rail); got != nil {
		t.Errorf("a denied link has routable addresses: %v", got)
	}
}

func TestMissing(t *testing.T) {
	v := &Inventory{Links: []Link{{Name: "ens1"}}, Devices: []Device{{Name: "mlx5_0"}}}
	r := Rules{Allow: []string{"ens1", "ens9", "mlx5_*", "mlx5_7", "ib*"}, Deny: []string{"ens1", "ens8", "docker*"}}
	if got, want := r.Missing(v), []string{"ens9", "mlx5_7", "ib*"}; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
	if got, want := r.MissingDenied(v), []string{"ens8"}; !slices.Equal(got, want) {
		t.Errorf("missing and denied %q, want %q", got, want)
	}
}
