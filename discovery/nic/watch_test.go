package nic

import (
	"context"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/kvpipe/kvpipe/discovery/internal/fixture"
	"github.com/kvpipe/kvpipe/internal/sys"
	"github.com/kvpipe/kvpipe/internal/sys/systest"
)

// watched is a watcher that nothing but events can tell of changes.
type watched struct {
	*testing.T
	*Watcher
	changes chan *Inventory
}

func watch(t *testing.T, sys string, every time.Duration) watched {
	t.Helper()
	w := watched{T: t, changes: make(chan *Inventory, 100)}
	w.Watcher = Watch(WatchConfig{Source: Source{Sys: sys}, Changed: func(_, now *Inventory) { w.changes <- now }, Every: every})
	t.Cleanup(w.Close)
	return w
}

// until waits for an inventory of which ok is true.
func (w watched) until(what string, ok func(*Inventory) bool) *Inventory {
	w.Helper()
	deadline := time.After(time.Minute)
	for now := w.Current(); ; {
		if ok(now) {
			return now
		}
		select {
		case now = <-w.changes:
		case <-deadline:
			w.Fatalf("%s: never seen; the last inventory: %+v", what, *w.Current())
		}
	}
}

func (w watched) link(what, name string, ok func(Link) bool) {
	w.Helper()
	w.until(what, func(v *Inventory) bool { l, there := v.Link(name); return there && ok(l) })
}

func (w watched) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w watched) named(name string) netlink.Link {
	w.Helper()
	l, err := netlink.LinkByName(name)
	w.do(err)
	return l
}

func (w watched) addr(s string) *netlink.Addr {
	w.Helper()
	a, err := netlink.ParseAddr(s)
	w.do(err)
	return a
}

// Links are made, get addresses, are renamed, taken down, lose their carrier, lose addresses to each other and go: each is seen by its event.
func TestWatcherFollowsLinks(t *testing.T) {
	sys, in := inside(t)
	if !in {
		return
	}
	w := watch(t, sys, time.Hour)
	if v := w.Current(); v.State != Complete || len(v.Links) != 1 || v.Links[0].Kind != "loopback" || v.Links[0].Up {
		t.Fatalf("a new namespace has a loopback link that is down, not %+v", *v)
	}

	w.do(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "kv0", MTU: 9000}, PeerName: "kv1"}))
	w.link("made", "kv0", func(l Link) bool {
		return l.Kind == "veth" && !l.Up && l.MTU == 9000 && l.NUMA == -1 && l.PCI == "" && l.MAC != ""
	})
	w.do(netlink.LinkSetUp(w.named("kv0")))
	w.do(netlink.LinkSetUp(w.named("kv1")))
	w.link("up", "kv0", func(l Link) bool { return l.Up && l.SpeedMbps > 0 })

	four, six := netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd00:9::1/64")
	w.do(netlink.AddrAdd(w.named("kv0"), w.addr(four.String())))
	w.do(netlink.AddrAdd(w.named("kv0"), w.addr(six.String())))
	w.link("addresses, the IPv6 one once it is known to be unique", "kv0", func(l Link) bool { return slices.Contains(l.Addresses, four) && slices.Contains(l.Addresses, six) })
	if l, ok := w.Current().Holder(netip.MustParseAddr("::ffff:10.9.0.1")); !ok || l.Name != "kv0" {
		t.Errorf("10.9.0.1 is kv0's, not %+v", l)
	}

	w.do(netlink.AddrDel(w.named("kv0"), w.addr(four.String())))
	w.do(netlink.AddrAdd(w.named("kv1"), w.addr(four.String())))
	w.link("address moved", "kv1", func(l Link) bool { return slices.Contains(l.Addresses, four) })
	if l, _ := w.Current().Link("kv0"); slices.Contains(l.Addresses, four) {
		t.Errorf("kv0 still has %s", four)
	}

	before, _ := w.Current().Link("kv1")
	w.do(netlink.LinkSetDown(w.named("kv1")))
	w.link("without carrier", "kv0", func(l Link) bool { return !l.Up })
	w.do(netlink.LinkSetName(w.named("kv1"), "rail7"))
	w.link("renamed", "rail7", func(l Link) bool { return l.Index == before.Index })
	w.do(netlink.LinkSetUp(w.named("rail7")))
	w.link("carrier again", "kv0", func(l Link) bool { return l.Up })

	w.do(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	w.do(netlink.LinkSetMaster(w.named("rail7"), w.named("br0")))
	w.link("part of a bridge", "rail7", func(l Link) bool { return l.Master == "br0" })

	w.do(netlink.LinkDel(w.named("kv0")))
	w.until("gone, with its peer", func(v *Inventory) bool { _, a := v.Link("kv0"); _, b := v.Link("rail7"); return !a && !b })
}

// veth is a pair of links, a kind that kernels have where little else is built in.
func veth(name string) *netlink.Veth {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "far"}
}

// Devices that are no links are told of by uevents alone. That of a link stands for theirs here.
func TestWatcherHearsUevents(t *testing.T) {
	if _, in := inside(t); !in {
		return
	}
	w := &Watcher{cfg: WatchConfig{Every: time.Hour}, dirty: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.wg.Go(func() { w.listen(syscall.NETLINK_KOBJECT_UEVENT, 1) })
	defer w.Close()
	<-w.dirty // it listens
	if err := netlink.LinkAdd(veth("d0")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.dirty:
	case <-time.After(time.Minute):
		t.Fatal("a uevent was not heard")
	}
}

// A flood of changes that overruns the socket is seen in the end.
func TestWatcherSurvivesLostEvents(t *testing.T) {
	if _, in := inside(t); !in {
		return
	}
	s, err := sys.NetlinkEvents(syscall.NETLINK_ROUTE, syscall.RTNLGRP_LINK)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = sys.Control(s, func(fd int) error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) }) // as little as the kernel grants
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		link := veth("d0")
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkDel(link); err != nil {
			t.Fatal(err)
		}
	}
	w := &Watcher{}
	for i := range 3 {
		if !w.event(s) {
			t.Fatalf("event %d: an overrun ended the subscription", i)
		}
		if link := veth("d0"); netlink.LinkAdd(link) != nil || netlink.LinkDel(link) != nil {
			t.Fatal("no further event could be made")
		}
	}
}

// RDMA devices that come without any event are found by looking now and then.
func TestWatcherLooksNowAndThen(t *testing.T) {
	root := t.TempDir()
	w := watch(t, root+"/sys", 5*time.Millisecond)
	if n := len(w.Current().Devices); n > 0 {
		t.Fatalf("%d RDMA devices in an empty tree", n)
	}
	archive, err := os.ReadFile("testdata/mixed.txtar")
	w.do(err)
	w.do(fixture.Unpack(root, archive))
	w.until("RDMA devices", func(v *Inventory) bool { return len(v.Devices) == 3 })
}

// A daemon that may not use netlink says so, and how to allow it; a watcher runs all the same and ends.
func TestNetlinkRefused(t *testing.T) {
	if _, in := inside(t); !in {
		return
	}
	systest.RefuseFamily(t, syscall.AF_NETLINK)
	w := watch(t, t.TempDir(), time.Hour)
	v := w.Current()
	if v.State != Unknown || len(v.Links) > 0 {
		t.Errorf("without netlink: %+v", *v)
	}
	const want = "links and addresses (netlink): address family not supported by protocol: netlink is forbidden here; " +
		"allow AF_NETLINK in the sandbox (systemd: RestrictAddressFamilies=)"
	if v.Reason != want {
		t.Errorf("reason %q\nwant   %q", v.Reason, want)
	}
	var routes Routes
	defer routes.Close()
	for range 2 {
		if _, err := routes.Find(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")); err == nil || !strings.Contains(err.Error(), "allow AF_NETLINK") {
			t.Errorf("a route without netlink: %v", err)
		}
	}
}

// A kernel that cannot be asked for a moment, here since no descriptor is left, takes no NIC away: what was known stays, and is said to be
// incomplete, since data links would move from NICs that are there.
func TestALookThatFailsTakesNothingAway(t *testing.T) {
	root, in := inside(t)
	if !in {
		return
	}
	w := watch(t, root, 10*time.Millisecond)
	before := w.until("all", func(v *Inventory) bool { return v.State == Complete && len(v.Links) > 0 })
	var limit syscall.Rlimit
	w.do(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	w.do(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	now := w.until("a look that fails", func(v *Inventory) bool { return v.State != Complete })
	w.do(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if now.State != Partial || !strings.Contains(now.Reason, "links and addresses (netlink): too many open files") || !reflect.DeepEqual(now.Links, before.Links) {
		t.Errorf("%+v\nbefore: %+v", *now, *before)
	}
	w.until("all again", func(v *Inventory) bool { return v.State == Complete && v.Reason == "" })
}

// Events without end do not keep a CPU busy, and a change is seen within a second all the same.
func TestCalm(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ took, want time.Duration }{{0, 20 * ms}, {ms, 20 * ms}, {10 * ms, 90 * ms}, {time.Minute, 900 * ms}} {
		if got := calm(20*ms, c.took); got != c.want {
			t.Errorf("after a look of %v: %v, want %v", c.took, got, c.want)
		}
	}
}
