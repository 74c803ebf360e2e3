package topology

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// SVG draws the topology: a box for each NUMA node, with the root complexes, the switches behind them and the
// devices, and below the boxes the NVLinks. It is one self-contained file that follows the reader's choice of a light
// or dark display.
func (t *Topology) SVG(w io.Writer, title string) error {
	d := drawing{t: t, wires: t.wires(), pairs: t.pairs(), ends: map[int][]frame{}}
	d.layOut()
	d.draw()
	_, err := io.WriteString(w, d.page(title))
	return err
}

// drawing is an SVG in the making.
type drawing struct {
	t             *Topology
	wires         map[int]int // NVLink lines that leave each GPU
	pairs         [][2]int    // GPUs with direct NVLinks
	nodes         []*nodeBox
	ends          map[int][]frame // by GPU: where its lines arrive below the boxes, without those already used
	right, bottom int
	c             canvas
}

// pairs returns the GPUs that NVLink joins without a switch.
func (t *Topology) pairs() (all [][2]int) {
	for i := range t.Devices {
		for j := i + 1; j < len(t.Devices); j++ {
			if t.Links[i][j].NVLinks() > 0 && (t.Devices[i].Switched == 0 || t.Devices[j].Switched == 0) {
				all = append(all, [2]int{i, j})
			}
		}
	}
	return all
}

// wires counts the lines of each GPU: one for each direct neighbour, and one for all links to switches.
func (t *Topology) wires() map[int]int {
	n := map[int]int{}
	for i := range t.Devices {
		if t.switched(i) {
			n[i]++
		}
	}
	for _, p := range t.pairs() {
		n[p[0]]++
		n[p[1]]++
	}
	return n
}

// switched says whether the GPU uses links to a switch.
func (t *Topology) switched(i int) bool {
	return t.Devices[i].Switched > 0 && len(t.Devices[i].MIG) == 0
}

// layOut places the NUMA nodes side by side, all as high as the highest.
func (d *drawing) layOut() {
	x, y := margin, margin+rowHigh+gap
	if len(d.t.Nodes) > 1 {
		y += rowHigh + gap // for the bar that joins them
	}
	add := func(n *Node, devices []int) {
		b := d.t.newNode(n, devices, d.wires, x, y)
		d.nodes = append(d.nodes, b)
		x += b.w + gap
	}
	for i := range d.t.Nodes {
		n := &d.t.Nodes[i]
		own := slices.ContainsFunc(d.t.Devices, func(v Device) bool { return v.MemoryNode == n.ID }) // shown as the GPU's
		if devices := d.t.at(n.ID); !own || len(devices) > 0 {
			add(n, devices)
		}
	}
	if lost := d.t.at(-1); len(lost) > 0 {
		add(nil, lost)
	}
	high := 0
	for _, b := range d.nodes {
		high = max(high, b.h)
	}
	for _, b := range d.nodes {
		b.h = high
	}
	d.right, d.bottom = max(x-gap, margin+560), y+high
}

// at lists the devices at a NUMA node; -1: those whose node is not known or does not exist.
func (t *Topology) at(node int) (devices []int) {
	for i := range t.Devices {
		at := t.Devices[i].Node
		if !slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.ID == at }) {
			at = -1
		}
		if at == node {
			devices = append(devices, i)
		}
	}
	return devices
}

func (d *drawing) draw() {
	d.interconnect()
	for _, b := range d.nodes {
		d.node(b)
	}
	d.direct()
	d.switches()
	d.legend()
}

// interconnect draws the bar that joins the NUMA nodes.
func (d *drawing) interconnect() {
	var joined []*nodeBox
	var far []int
	for _, b := range d.nodes {
		if b.node == nil {
			continue
		}
		joined = append(joined, b)
		for i, n := range b.node.Distance {
			if other := &d.t.Nodes[i]; other.ID != b.node.ID && other.CPUs != "" && b.node.CPUs != "" {
				far = append(far, n)
			}
		}
	}
	if len(joined) < 2 {
		return
	}
	text := "between NUMA nodes (SYS)"
	if len(far) > 0 {
		text += fmt.Sprintf(", distance %d", slices.Min(far))
		if slices.Max(far) > slices.Min(far) {
			text += fmt.Sprintf(" to %d", slices.Max(far))
		}
	}
	first, last := joined[0], joined[len(joined)-1]
	y := first.y - gap
	bar := frame{first.x + first.w/2 - 40, y - rowHigh, last.x + last.w/2 + 40 - (first.x + first.w/2 - 40), rowHigh}
	for _, b := range joined {
		d.c.path("bus", b.x+b.w/2, y, b.x+b.w/2, b.y)
	}
	d.c.rect("bar", bar, 10)
	d.c.text("small mid", bar.x+bar.w/2, y-6, text)
}

// node draws a NUMA node and what is at it.
func (d *drawing) node(b *nodeBox) {
	d.c.rect("node", b.frame, 8)
	x, y := b.x+pad+2, b.y
	if b.node == nil {
		d.c.text("head", x, y+22, "No node known")
	} else {
		d.c.text("head", x, y+22, fmt.Sprintf("NUMA node %d", b.node.ID))
		most := (b.w - 2*pad) / 6
		d.c.text("small", x, y+38, fit("CPUs "+orNA(b.node.CPUs), most))
		d.c.text("small", x, y+52, "Memory "+gib(b.node.Bytes))
	}
	for _, r := range b.roots {
		d.root(r)
	}
}

// root draws a root complex as an outline.
func (d *drawing) root(r *rootBox) {
	d.c.rect("root", r.frame, 6)
	name := r.name
	if name == "" {
		name = "place not known"
	}
	d.c.text("small strong", r.x+pad, r.y+17, name)
	wire := 0
	for i := range r.rows {
		w := &r.rows[i]
		trunk, top := r.x+pad+3, r.y+rowHigh+3
		if w.parent >= 0 {
			p := &r.rows[w.parent]
			trunk, top = p.x+5, p.y+rowHigh-3
		}
		mid := w.y + min(w.h, devHigh)/2
		d.c.path("bus", trunk, top, trunk, mid, w.x, mid)
		if w.device < 0 {
			d.bridge(w)
			continue
		}
		d.device(w)
		for k := range d.wires[w.device] {
			x, y := r.x+r.w-pad-wire*wireGap, w.y+10+k*5
			d.c.path("wire", w.x+w.w, y, x, y, x, d.bottom+rowGap)
			d.ends[w.device] = append(d.ends[w.device], frame{x: x, y: d.bottom + rowGap, h: wire})
			wire++
		}
	}
}

func (d *drawing) bridge(w *row) {
	what := "switch "
	if w.bridge.depth == 1 {
		what = "root port "
	}
	d.c.rect("switch", frame{w.x, w.y + 2, w.w, rowHigh - 4}, 3)
	d.c.text("small", w.x+6, w.y+14, what+short(w.bridge.bridge))
}

func (d *drawing) device(w *row) {
	v := &d.t.Devices[w.device]
	d.c.rect(string(v.Kind), w.frame, 5)
	d.c.text("strong", w.x+8, w.y+16, v.ID)
	d.c.text("small end", w.x+w.w-8, w.y+16, short(v.PCI))
	name := strings.TrimPrefix(v.Name, "NVIDIA ")
	if v.Netdev != "" && v.Netdev != v.Name {
		name += ", " + v.Netdev
	}
	if v.MemoryNode >= 0 {
		name += fmt.Sprintf(", node %d", v.MemoryNode)
	}
	if v.VirtualOf != "" {
		name += ", virtual"
	}
	d.c.text("small", w.x+8, w.y+30, fit(name, 21))
	for k, m := range v.MIG {
		f := frame{w.x + 6, w.y + devHigh - 2 + k*migHigh, w.w - 12, migHigh - 3}
		d.c.rect("mig", f, 3)
		d.c.text("tiny", f.x+6, f.y+10, fit(m, 22))
	}
}
