package peer

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
)

// FuzzFrame: whatever comes, reading and decoding a frame end with a message or an error, take memory in proportion to what
// came, and a message that was understood comes back from its own bytes.
func FuzzFrame(f *testing.F) {
	for _, m := range samples() {
		wire, err := appendMsg(nil, 1, m, false)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
		f.Add(wire[:len(wire)-1])
		f.Add(append(wire[:4:4], wire[5:]...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{4, 0, 0, 0, 0x5a, 2, 0x62, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		fs := newFrames(bytes.NewReader(wire))
		for {
			fr, err := fs.next(1 << 20)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isMalformed(err) {
				return
			}
			if err != nil {
				t.Fatalf("an error of no known kind: %v", err)
			}
			if _, _, moved, err := decodeHeartbeat(fr.body); err == nil {
				_, _ = decodeAddresses(moved)
			}
			_, _, _ = decodeClose(fr.body)
			m, err := decode(fr.kind, fr.body, new(stores))
			if isMalformed(err) {
				return
			}
			if err != nil {
				t.Fatalf("an error of no known kind: %v", err)
			}
			again, err := appendMsg(nil, fr.epoch, m, false)
			if err != nil {
				t.Fatalf("understood %T and cannot write it: %v", m, err)
			}
			_, back, err := read(again)
			if diff := cmp.Diff(m, back, alike); err != nil || diff != "" {
				t.Fatalf("%T: %v %s", m, err, diff)
			}
		}
	})
}

// FuzzHello: what a connection begins with, by whoever dialed, is a Hello, somebody's refusal, or an error of a known kind; one that is
// accepted has fields within their limits.
func FuzzHello(f *testing.F) {
	m := &Manager{cfg: Config{Node: "a", Proto: [2]uint32{1, 2}, Incarnation: 7}}
	hello := &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "b", Incarnation: 3, Advertise: "b:7650", Version: "0.1.0", Transports: []string{"tcp"}, Streams: 2, Runs: true}
	hello.Addresses = encodeAddresses([]Address{{IP: netip.MustParseAddr("10.0.0.2"), Mbps: 100, NIC: "eth0"}})
	for _, change := range []func(){func() {}, func() { hello.Node = "a" }, func() { hello.ProtoMin = 9 }, func() { hello.Transports = make([]string, 17) }} {
		change()
		wire, err := appendHello(nil, hello)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
		f.Add(wire[:len(wire)-1])
	}
	refused, err := appendClose(nil, 0, closeDuplicate, "b")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(refused)
	f.Fuzz(func(t *testing.T, wire []byte) {
		h, err := readHello(newFrames(bytes.NewReader(wire)))
		if err != nil {
			if h != nil || asCause(err, "").Text == "" {
				t.Fatalf("%v with %v", h, err)
			}
			return
		}
		if m.acceptable(h, h.Node) != nil {
			return
		}
		own, err := decodeAddresses(h.Addresses)
		if !nameOK(h.Node) || h.Node == "a" || h.ProtoMin > 2 || h.ProtoMax < 1 || len(h.Transports) > 16 || err != nil || len(own) > 64 {
			t.Fatalf("accepted %v with %d addresses, %v", h, len(own), err)
		}
	})
}

// FuzzLinkHello: nobody without the secret makes a hello that is taken for proven.
func FuzzLinkHello(f *testing.F) {
	secret := bytes.Repeat([]byte{7}, secretSize)
	good := linkHello{index: 1, epoch: 2, serial: 3}
	f.Add(good.append(nil, secret))
	f.Add(good.append(nil, bytes.Repeat([]byte{8}, secretSize)))
	f.Add(make([]byte, linkHelloSize))
	for _, zero := range []int{20, linkSaid - 1, linkHelloSize - 8, linkHelloSize - 1} { // none must stay one
		b := good.append(nil, secret)
		b[zero] = 1
		copy(b[linkSaid:], prove(secret, b[:linkSaid]))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeLinkHello(b)
		if err != nil {
			if !isMalformed(err) {
				t.Fatalf("an error of no known kind: %v", err)
			}
			return
		}
		proven := bytes.Equal(h.proof, prove(secret, h.said))
		if same := bytes.Equal(b, h.append(nil, secret)); proven != same {
			t.Fatalf("proven %v, but it is what the secret's owner writes: %v", proven, same)
		}
	})
}

// Tiny elements must not become large things: a frame full of them is refused early.
func TestWhatAFrameTakesIsBoundedByItsLength(t *testing.T) {
	const size = 4 << 20
	for name, element := range map[string][]byte{
		"ranks": {12<<3 | 2, 0}, "lists": {13<<3 | 2, 0}, "lists by rank": {14<<3 | 2, 0}, "lists in a list": {14<<3 | 2, 4, 2<<3 | 2, 0, 2<<3 | 2, 0},
	} {
		body := bytes.Repeat(element, size/len(element))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decode(kindTake, body, nil)
		runtime.ReadMemStats(&after)
		if !isMalformed(err) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 2*size {
			t.Errorf("%s: %d bytes of frame took %d", name, size, took)
		}
	}
}

// TestRanksOfAGrantAreBounded, each of which costs more than it takes on the wire.
func TestRanksOfAGrantAreBounded(t *testing.T) {
	var w writer
	for rank := range uint64(maxRanks + 1) {
		var of writer
		of.uint(1, rank+1)
		w.element(8, of.b)
		if _, err := decode(kindGrant, w.b, nil); isMalformed(err) != (rank == maxRanks) {
			t.Fatalf("%d ranks: %v", rank+1, err)
		}
	}
}

func TestNamesKeepFewStrings(t *testing.T) {
	var n stores
	for i := range 10 * maxNames {
		b := []byte{byte(i), byte(i >> 8), 'x'}
		for range 2 { // the second is the kept one
			if got := n.name(b); got != string(b) {
				t.Fatalf("%q for %q", got, b)
			}
		}
		if len(n.names) > maxNames {
			t.Fatalf("%d names kept", len(n.names))
		}
	}
}

// TestLinkNumbersInAnyOrder: none is fresh twice, and none that is not far below the highest is refused.
func TestLinkNumbersInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		came, top := map[uint32]bool{}, uint32(0)
		for range rapid.IntRange(1, 100).Draw(t, "numbers") {
			n := uint32(max(int(top)+rapid.IntRange(-windowSize-2, 90).Draw(t, "step"), 0))
			want := n > 0 && !came[n] && (n > top || top-n < windowSize)
			if got := w.fresh(n); got != want {
				t.Fatalf("%d, where the highest is %d: fresh is %v", n, top, got)
			}
			came[n], top = true, max(top, n)
		}
	})
}

func TestEachLinkNumberIsFreshOnce(t *testing.T) {
	var w window
	for _, step := range []struct {
		n    uint32
		want bool
	}{
		{1, true}, {1, false}, {3, true}, {2, true}, {2, false}, {0, false}, {200, true}, {4, true}, {300, true}, {200, false}, {44, false}, {45, true},
		{45, false}, {299, true}, {100000, true}, {300, false}, {99999, true}, {99999, false}, {1<<32 - 1, true}, {1<<32 - 1, false}, {1<<32 - 2, true},
	} {
		if got := w.fresh(step.n); got != step.want {
			t.Errorf("%d: fresh is %v", step.n, got)
		}
	}
}
