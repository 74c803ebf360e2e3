package sim

import (
	"encoding/binary"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

const (
	layers     = 3
	totalHeads = 2
	numBlocks  = 40
	cell       = 8 // bytes of one token of one head of one layer
	region     = layout.RegionID(1)
)

// shape is how an engine lays its cache out.
type shape struct {
	sched     bool   // a scheduler's session offers and takes; else every worker does
	split     string // "" one rank, "tp" two ranks with a head each, "pp" two ranks with different layers, "ppp" three
	blockSize int
	hnd       bool // heads before tokens
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
	return p
}

// memory is one rank's cache.
type memory struct {
	shape  shape
	part   part
	bytes  []byte
	layout *layout.Layout
}

func newMemory(s shape, rank int) *memory {
	m := &memory{shape: s, part: s.part(rank)}
	m.bytes = make([]byte, len(m.part.layers)*m.layerBytes())
	token, head := m.part.heads*cell, cell
	if s.hnd {
		token, head = cell, s.blockSize*cell
	}
	var views []layout.View
	for i, l := range m.part.layers {
		views = append(views, layout.View{
			Region: region, Base: uint64(i * m.layerBytes()), NumBlocks: numBlocks, BlockStride: uint64(m.blockBytes()),
			TokenStride: uint64(token), HeadStride: uint64(head), ContentBytes: cell, Layer: l, Kind: layout.Paged,
			BlockSize: uint32(s.blockSize), FirstHead: uint32(m.part.firstHead), Heads: uint32(m.part.heads), TotalHeads: totalHeads, Part: "kv",
		})
	}
	var err error
	if m.layout, err = layout.New(views, []layout.Field{{Key: "model", Value: s.model}}, nil); err != nil {
		panic(err)
	}
	return m
}

func (m *memory) blockBytes() int { return m.shape.blockSize * m.part.heads * cell }
func (m *memory) layerBytes() int { return numBlocks * m.blockBytes() }

// blockAt says to which block a byte belongs.
func (m *memory) blockAt(off int) uint32 { return uint32(off % m.layerBytes() / m.blockBytes()) }

// at finds the cell of a token slot of a block; head counts within the rank.
func (m *memory) at(layer int, block uint32, slot, head int) []byte {
	off := layer*m.layerBytes() + int(block)*m.blockBytes()
	if m.shape.hnd {
		off += (head*m.shape.blockSize + slot) * cell
	} else {
		off += (slot*m.part.heads + head) * cell
	}
	return m.bytes[off : off+cell]
}

// pattern is what belongs into a cell: nobody else's cell has it.
func pattern(req, gen int, layer uint32, token, head int) uint64 {
	return mix(mix(uint64(req)<<8|uint64(gen))^uint64(layer)<<40^uint64(token)<<8^uint64(head)) | 1
}

// write puts a request's content into the layers from first to last (ordinals) of a list's blocks.
func (m *memory) write(req, gen int, b layout.BlockList, first, last int) {
	m.each(b, first, last, func(layer uint32, token, head int, c []byte) bool {
		binary.LittleEndian.PutUint64(c, pattern(req, gen, layer, token, head))
		return true
	})
}

// each visits the cells of a list.
func (m *memory) each(b layout.BlockList, first, last int, visit func(layer uint32, token, head int, c []byte) bool) {
	bs := m.shape.blockSize
	for t := int(b.FirstToken); t < int(b.FirstToken+b.NTokens); t++ {
		id := b.IDs[t/bs-int(b.FirstToken)/bs]
		if id == layout.NoBlock {
			continue
		}
		for l := first; l < last; l++ {
			for h := range m.part.heads {
				if !visit(m.part.layers[l], t, m.part.firstHead+h, m.at(l, id, t%bs, h)) {
					return
				}
			}
		}
	}
}

// spoil fills blocks with what no request has, as their next user would.
func (m *memory) spoil(ids []uint32, with uint64) {
	for _, id := range ids {
		if id == layout.NoBlock {
			continue
		}
		for l := range m.part.layers {
			off := l*m.layerBytes() + int(id)*m.blockBytes()
			for i := 0; i < m.blockBytes(); i += cell {
				binary.LittleEndian.PutUint64(m.bytes[off+i:], with&^1)
			}
		}
	}
}
