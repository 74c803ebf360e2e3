package sim

import (
	"encoding/binary"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

const (
	layers     = 3
	stateLayer = layers // of state, see states.go
	allLayers  = layers + 1
	totalHeads = 2
	numBlocks  = 40
	cell       = 8 // bytes of one token of one head of one layer
	region     = layout.RegionID(1)
)

// shape is how an engine lays out its cache.
type shape struct {
	sched     bool   // a scheduler's session offers and takes; else every worker does
	split     string // "" one rank, "tp" two ranks with a head each, "pp" two ranks with different layers, "ppp" three, "same" two ranks that both have everything
	blockSize int
	second    int  // block size of the second group; 0: there is none
	odd       int  // block size at ranks with an odd number; 0: the same
	oddSecond int  // the same of the second group
	hnd       bool // heads before tokens
	state     bool // there is a layer of state
	model     string
}

func (c *Cluster) someShape(i int) shape {
	r := &c.rng
	s := shape{sched: r.hit(60), split: pick(r, []string{"", "", "tp", "pp"}), blockSize: pick(r, []int{2, 4}), hnd: r.hit(50), model: "m"}
	if c.unsettled() && r.hit(60) {
		s.sched, s.split = true, pick(r, []string{"tp", "pp"})
	}
	if i > 2 && r.hit(5) {
		s.model = "other"
	}
	return s
}

func (s shape) ranks() int {
	switch s.split {
	case "":
		return 1
	case "ppp":
		return 3
	}
	return 2
}

// part is what one rank holds.
type part struct {
	layers    []uint32
	firstHead int
	heads     int
}

func (s shape) part(rank int) part {
	p := part{layers: []uint32{0, 1, 2}, heads: totalHeads}
	switch s.split {
	case "tp":
		p.firstHead, p.heads = rank, 1
	case "pp":
		p.layers = [][]uint32{{0, 1}, {2}}[rank]
	case "ppp":
		p.layers = p.layers[rank : rank+1]
	}
	if s.state && (s.split == "tp" || s.split == "same" || rank == s.ranks()-1) {
		p.layers = append(slices.Clone(p.layers), stateLayer)
	}
	return p
}

// memory is one rank's cache.
type memory struct {
	shape  shape
	part   part
	bytes  []byte
	starts []int // offset of each layer, and the end
	layout *layout.Layout
}

func newMemory(s shape, rank int) *memory {
	m := &memory{shape: s, part: s.part(rank)}
	m.starts = []int{0}
	var views []layout.View
	for i, l := range m.part.layers {
		g := s.groupOf(l)
		size := s.size(g)
		token, head := m.part.heads*cell, cell
		if s.hnd {
			token, head = cell, size*cell
		}
		v := layout.View{
			Region: region, Base: uint64(m.starts[i]), NumBlocks: numBlocks, BlockStride: uint64(m.blockBytes(g)),
			TokenStride: uint64(token), HeadStride: uint64(head), ContentBytes: cell, Layer: l, Group: g, Kind: layout.Paged,
			BlockSize: uint32(size), FirstHead: uint32(m.part.firstHead), Heads: uint32(m.part.heads), TotalHeads: totalHeads, Part: "kv",
		}
		if g == stateGroup {
			v = stateView(v)
		}
		views = append(views, v)
		m.starts = append(m.starts, m.starts[i]+numBlocks*m.blockBytes(g))
	}
	m.bytes = make([]byte, m.starts[len(m.part.layers)])
	var err error
	if m.layout, err = layout.New(views, []layout.Field{{Key: "model", Value: s.model}}, nil); err != nil {
		panic(err)
	}
	return m
}

func (m *memory) blockBytes(group uint32) int { return m.shape.size(group) * m.heads(group) * cell }

// heads returns how many heads the rank has of a group's layers.
func (m *memory) heads(group uint32) int {
	if group == stateGroup {
		return 1
	}
	return m.part.heads
}

// firstHead returns the first of them.
func (m *memory) firstHead(group uint32) int {
	if group == stateGroup {
		return 0
	}
	return m.part.firstHead
}

// blockAt returns the block that a byte belongs to, as a place.
func (m *memory) blockAt(off int) uint32 {
	i := 0
	for m.starts[i+1] <= off {
		i++
	}
	g := m.shape.groupOf(m.part.layers[i])
	return place(g, uint32((off-m.starts[i])/m.blockBytes(g)))
}

// at finds the cell of a token slot of a block; head counts within the rank.
func (m *memory) at(layer int, block uint32, slot, head int) []byte {
	g := m.shape.groupOf(m.part.layers[layer])
	off := m.starts[layer] + int(block)*m.blockBytes(g)
	if m.shape.hnd {
		off += (head*m.shape.size(g) + slot) * cell
	} else {
		off += (slot*m.heads(g) + head) * cell
	}
	return m.bytes[off : off+cell]
}

// pattern is the content of a cell. No other cell has the same.
func pattern(req, gen int, layer uint32, token, head int) uint64 {
	return mix(mix(uint64(req)<<8|uint64(gen))^uint64(layer)<<40^uint64(token)<<8^uint64(head)) | 1
}

// write puts a request's content into the blocks of a list, in the layers from first to before last (ordinals).
func (m *memory) write(req, gen int, b layout.BlockList, first, last int) {
	m.each(b, first, last, func(layer uint32, token, head int, c []byte) bool {
		binary.LittleEndian.PutUint64(c, pattern(req, gen, layer, token, head))
		return true
	})
}

// each visits the cells of a list, until visit returns false.
func (m *memory) each(b layout.BlockList, first, last int, visit func(layer uint32, token, head int, c []byte) bool) {
	bs := m.shape.size(b.Group)
	from, to := tokensOf(b)
	for t := from; t < to; t++ {
		at := t/bs - from/bs
		if at >= len(b.IDs) { // a list for another rank's blocks, which is refused
			return
		}
		id := b.IDs[at]
		if id == layout.NoBlock {
			continue
		}
		for l := first; l < last; l++ {
			if m.shape.groupOf(m.part.layers[l]) != b.Group {
				continue
			}
			for h := range m.heads(b.Group) {
				if !visit(m.part.layers[l], t, m.firstHead(b.Group)+h, m.at(l, id, t%bs, h)) {
					return
				}
			}
		}
	}
}

// spoil fills blocks with something that no request has, as their next user would.
func (m *memory) spoil(places []uint32, with uint64) {
	for _, at := range places {
		for l, layer := range m.part.layers {
			g := m.shape.groupOf(layer)
			if g != at/numBlocks {
				continue
			}
			off := m.starts[l] + int(at%numBlocks)*m.blockBytes(g)
			for i := 0; i < m.blockBytes(g); i += cell {
				binary.LittleEndian.PutUint64(m.bytes[off+i:], with&^1)
			}
		}
	}
}
