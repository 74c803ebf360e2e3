// Package place lets threads run near the memory that they copy. It knows the NUMA nodes of the machine and which of
// their CPUs the daemon may use, asks the kernel on which node memory lies, and moves threads there and back.
//
// On a machine with one node, or where the daemon may use the CPUs of only one node, there is nothing to choose. New
// then returns nil, and every method of a nil *Places answers at once that any place is as good as another.
package place

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kvpipe/kvpipe/discovery/topology"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Anywhere is the spot of memory whose node is unknown, or that lies on several nodes.
const Anywhere = -1

// Places are the spots of a machine. Safe for concurrent use.
type Places struct {
	spots  []spot
	byNode map[int]int // the spot of each node; for nodes without CPUs the nearest one
	where  Where
	denied atomic.Pointer[error] // why the kernel does not say where memory lies
}

// spot is a NUMA node with CPUs.
type spot struct {
	node    int
	cpus    sys.CPUs
	own     bool // cpus belong to the node
	threads atomic.Int64
	slices  atomic.Uint64
	bytes   atomic.Uint64
}

// Where says on which NUMA nodes pages lie, as sys.PageNodes does.
type Where func(page [][]byte, node []int) error

// New returns the spots of a machine with those nodes. If there are none, it returns nil and says why. cpus are the
// CPUs that the daemon may use: each spot has those of its node, or all of cpus if none of them is on that node. where
// is sys.PageNodes except in tests.
func New(nodes []topology.Node, cpus sys.CPUs, where Where) (p *Places, why string) {
	p = &Places{byNode: map[int]int{}, where: where}
	var with []topology.Node
	for _, n := range nodes {
		own, err := sys.ParseCPUs(n.CPUs)
		if err != nil {
			return nil, fmt.Sprintf("NUMA node %d: %v", n.ID, err)
		}
		if own.Count() == 0 {
			continue
		}
		p.byNode[n.ID] = len(with)
		with = append(with, n)
		usable := own.And(cpus)
		p.spots = append(p.spots, spot{node: n.ID, cpus: usable, own: true})
		if usable.Count() == 0 {
			s := &p.spots[len(p.spots)-1]
			s.cpus, s.own = cpus, false
		}
	}
	if len(with) < 2 {
		return nil, "one NUMA node"
	}
	if !p.choice() {
		return nil, fmt.Sprintf("the daemon's CPUs, %s, leave no choice", cpus)
	}
	for i := range nodes {
		p.adopt(nodes, i, with)
	}
	return p, ""
}

// choice says whether the spots differ.
func (p *Places) choice() bool {
	for i := range p.spots {
		if p.spots[i].cpus != p.spots[0].cpus {
			return true
		}
	}
	return false
}

// adopt gives a node that has only memory the nearest spot.
func (p *Places) adopt(nodes []topology.Node, i int, with []topology.Node) {
	n := &nodes[i]
	if _, ok := p.byNode[n.ID]; ok || len(n.Distance) != len(nodes) {
		return // without distances its place is unknown
	}
	best, far := Anywhere, 0
	for j := range nodes {
		k := slices.IndexFunc(with, func(w topology.Node) bool { return w.ID == nodes[j].ID })
		if k >= 0 && (best == Anywhere || n.Distance[j] < far) {
			best, far = k, n.Distance[j]
		}
	}
	p.byNode[n.ID] = best
}

// Count returns how many spots there are; 0: there is nothing to choose. They are numbered from 0.
func (p *Places) Count() int {
	if p == nil {
		return 0
	}
	return len(p.spots)
}

// Of returns the spot nearest to the page of the first byte of b.
func (p *Places) Of(b []byte) int {
	if p == nil || len(b) == 0 {
		return Anywhere
	}
	page, node := [1][]byte{b[:1]}, [1]int{}
	return p.ask(page[:], node[:])
}

// samples is how many pages of scattered memory OfPieces asks about.
const samples = 4

// OfPieces returns the spot nearest to n pieces of memory, judged by a few of their pages. Anywhere: those lie near
// different spots, or it is not known where.
func (p *Places) OfPieces(n int, piece func(int) []byte) int {
	if p == nil || n == 0 {
		return Anywhere
	}
	var page [samples][]byte
	var node [samples]int
	for k := range page {
		b := piece(k * (n - 1) / (samples - 1))
		if len(b) > 0 {
			b = b[k*(len(b)-1)/(samples-1):]
		}
		page[k] = b
	}
	return p.ask(page[:], node[:])
}

// ask returns the one spot nearest to all pages whose node the kernel knows, else Anywhere. node is scratch memory.
func (p *Places) ask(page [][]byte, node []int) int {
	if p.denied.Load() != nil {
		return Anywhere
	}
	if err := p.where(page, node); err != nil {
		p.denied.CompareAndSwap(nil, &err)
		return Anywhere
	}
	found := Anywhere
	for _, id := range node {
		at, ok := p.byNode[id]
		if !ok {
			continue // not there yet
		}
		if found != Anywhere && found != at {
			return Anywhere
		}
		found = at
	}
	return found
}

// moved notes that a thread moved n bytes at a spot that was chosen for them.
func (p *Places) moved(at int, n uint64) {
	p.spots[at].slices.Add(1)
	p.spots[at].bytes.Add(n)
}

// Problem says why the kernel does not tell where memory lies; nil: it does.
func (p *Places) Problem() error {
	if p == nil {
		return nil
	}
	if err := p.denied.Load(); err != nil {
		return *err
	}
	return nil
}

// Spot describes a spot for people.
type Spot struct {
	Node    int    // NUMA node
	CPUs    string // on which threads there run
	Own     bool   // CPUs belong to that node
	Threads int    // there now
	Slices  uint64 // moved there because their memory lies there
	Bytes   uint64
}

// Spots describes all spots; nil: there is nothing to choose.
func (p *Places) Spots() []Spot {
	if p == nil {
		return nil
	}
	out := make([]Spot, len(p.spots))
	for i := range p.spots {
		s := &p.spots[i]
		out[i] = Spot{Node: s.node, CPUs: s.cpus.String(), Own: s.own, Threads: int(s.threads.Load()), Slices: s.slices.Load(), Bytes: s.bytes.Load()}
	}
	return out
}
