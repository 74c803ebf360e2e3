package place_test

import (
	"errors"
	"reflect"
	"runtime"
	"syscall"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/place/placetest"
	"github.com/kvpipe/kvpipe/discovery/topology"
	"github.com/kvpipe/kvpipe/internal/sys"
)

func cpus(t *testing.T, list string) sys.CPUs {
	t.Helper()
	c, err := sys.ParseCPUs(list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// on is a Where that says the same of all pages, one after the other.
func on(nodes ...int) place.Where {
	return func(_ [][]byte, node []int) error {
		for i := range node {
			node[i] = nodes[i%len(nodes)]
		}
		return nil
	}
}

var twoSockets = []topology.Node{{ID: 0, CPUs: "0-3,8-11"}, {ID: 1, CPUs: "4-7,12-15"}}

// TestSpots: which CPUs threads of each node may use.
func TestSpots(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []topology.Node
		cpus  string
		want  []string // of each spot
		why   string
	}{
		{"two sockets", twoSockets, "0-15", []string{"0-3,8-11", "4-7,12-15"}, ""},
		{"some CPUs are the engines'", twoSockets, "0-1,4-5", []string{"0-1", "4-5"}, ""},
		{"one socket is the engines': who has no CPUs there uses all it has", append(twoSockets[:2:2], topology.Node{ID: 2, CPUs: "16-19"}), "0-1,4", []string{"0-1", "4", "0-1,4"}, ""},
		{"CPUs of one node alone", twoSockets, "0-3", nil, "the daemon's CPUs, 0-3, leave no choice"},
		{"one node", twoSockets[:1], "0-15", nil, "one NUMA node"},
		{"one node with CPUs", []topology.Node{{ID: 0, CPUs: "0-15"}, {ID: 1}}, "0-15", nil, "one NUMA node"},
		{"none", nil, "0-15", nil, "one NUMA node"},
		{"CPUs that cannot be read", []topology.Node{{ID: 0, CPUs: "0-9999"}}, "0", nil, `NUMA node 0: CPUs "0-9999": "0-9999": want numbers and ranges up to 1023, such as "0-3,8"`},
	} {
		p, why := place.New(c.nodes, cpus(t, c.cpus), on(0))
		var got []string
		for _, s := range p.Spots() {
			got = append(got, s.CPUs)
		}
		if !reflect.DeepEqual(got, c.want) || why != c.why || p.Count() != len(c.want) || (p == nil) != (c.want == nil) {
			t.Errorf("%s: %q because %q, want %q because %q", c.name, got, why, c.want, c.why)
		}
	}
}

// TestWhereMemoryIs: the spot of memory is that of its node, or of the nearest with CPUs; memory of several nodes has none.
func TestWhereMemoryIs(t *testing.T) {
	nodes := []topology.Node{
		{ID: 0, CPUs: "0-3", Distance: []int{10, 20, 40, 80}}, {ID: 1, CPUs: "4-7", Distance: []int{20, 10, 80, 40}},
		{ID: 8, Distance: []int{40, 80, 10, 80}}, {ID: 9, Distance: []int{80, 40, 80, 10}},
	}
	b := make([]byte, 4<<12)
	for _, c := range []struct {
		name  string
		where place.Where
		want  int
	}{
		{"node 0", on(0), 0},
		{"node 1", on(1), 1},
		{"a node without CPUs, by node 1", on(9), 1},
		{"a node without CPUs, by node 0", on(8), 0},
		{"nowhere yet", on(-1), place.Anywhere},
		{"in part nowhere yet", on(-1, 1), 1},
		{"interleaved", on(0, 1), place.Anywhere},
		{"a node that came later", on(5), place.Anywhere},
	} {
		p, why := place.New(nodes, cpus(t, "0-7"), c.where)
		if p == nil {
			t.Fatal(why)
		}
		if got := p.OfPieces(1, func(int) []byte { return b }); got != c.want {
			t.Errorf("%s: spot %d, want %d", c.name, got, c.want)
		}
		if got := p.OfPieces(0, nil); got != place.Anywhere {
			t.Errorf("no memory at all is at %d", got)
		}
	}
}

// TestPiecesAreSampled: what is asked for lies all over the memory.
func TestPiecesAreSampled(t *testing.T) {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i / 100) // of its tenth
	}
	var seen []byte
	p, _ := place.New(twoSockets, cpus(t, "0-15"), func(page [][]byte, node []int) error {
		for i := range page {
			seen = append(seen, page[i][0])
			node[i] = 1
		}
		return nil
	})
	p.OfPieces(1, func(int) []byte { return b })
	p.OfPieces(10, func(i int) []byte { return b[100*i : 100*i+1] })
	p.Of(b[500:])
	if want := []byte{0, 3, 6, 9, 0, 3, 6, 9, 5}; !reflect.DeepEqual(seen, want) {
		t.Errorf("tenths %v were asked for, want %v", seen, want)
	}
	shares, err := place.Sample(b, func(page [][]byte, node []int) error {
		for i := range page {
			node[i] = int(page[i][0])/5 - 1 // the first half is nowhere
		}
		return nil
	})
	if want := []place.Share{{Node: 0, Pages: 8}}; err != nil || !reflect.DeepEqual(shares, want) {
		t.Errorf("shares %v, %v; want %v", shares, err, want)
	}
}

// TestForbidden: where the kernel may not be asked, it is asked once, and everything is as near as anything.
func TestForbidden(t *testing.T) {
	asked := 0
	p, _ := place.New(twoSockets, cpus(t, "0-15"), func([][]byte, []int) error { asked++; return syscall.EPERM })
	for range 3 {
		if got := p.Of([]byte{1}); got != place.Anywhere {
			t.Errorf("spot %d", got)
		}
	}
	if asked != 1 || !errors.Is(p.Problem(), syscall.EPERM) {
		t.Errorf("asked %d times, problem %v", asked, p.Problem())
	}
}

// TestNothingToChoose: a nil Places, and a seat of it, do nothing.
func TestNothingToChoose(t *testing.T) {
	var p *place.Places
	s := p.Seat()
	s.Take(p.Of([]byte{1}))
	s.Take(0)
	s.Moved(place.Anywhere, 1)
	s.Leave()
	if p.Count() != 0 || p.Spots() != nil || p.Problem() != nil || s.At() != place.Anywhere || p.OfPieces(1, nil) != place.Anywhere {
		t.Error("nothing is not nothing")
	}
}

// TestSeat: a goroutine's thread runs on the CPUs of its spot, and is given back as it was.
func TestSeat(t *testing.T) {
	m := placetest.New(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := m.Places.Seat()
		for _, at := range []int{0, 1, 1, place.Anywhere, 0} {
			s.Take(at)
			if at == place.Anywhere {
				at = 1 // it stays
			}
			if got := placetest.Here(t); got != m.CPUs[at] || s.At() != at {
				t.Errorf("at spot %d the thread runs on %q, want spot %d, %q", s.At(), got, at, m.CPUs[at])
			}
			if n := m.Places.Spots()[at].Threads; n != 1 {
				t.Errorf("%d threads are at spot %d", n, at)
			}
		}
		s.Moved(1, 100) // somebody else's place
		s.Moved(0, 4096)
		s.Leave()
		s.Leave()
		if got := placetest.Here(t); got != m.All || s.At() != place.Anywhere {
			t.Errorf("the thread runs on %q afterwards, want %q", got, m.All)
		}
		for _, p := range m.Places.Spots() {
			if p.Threads != 0 || p.Slices != uint64(1-p.Node) || p.Bytes != uint64(4096*(1-p.Node)) || !p.Own {
				t.Errorf("%+v is left", p)
			}
		}
	}()
	<-done
	if n := placetest.Threads(t); len(n) != 1 || n[m.All] == 0 {
		t.Errorf("threads run on %v, want %q alone", n, m.All)
	}
}

// TestManySeats: threads that go between spots and the scheduler never take their CPUs there.
func TestManySeats(t *testing.T) {
	m := placetest.New(t)
	done := make(chan struct{}, 50)
	for i := range cap(done) {
		go func() {
			defer func() { done <- struct{}{} }()
			s := m.Places.Seat()
			defer s.Leave()
			s.Take(i % 2)
			runtime.Gosched()
			s.Take((i + 1) % 2)
		}()
	}
	for range cap(done) {
		<-done
	}
	if n := placetest.Threads(t); len(n) != 1 || n[m.All] == 0 {
		t.Errorf("threads run on %v, want %q alone", n, m.All)
	}
}
