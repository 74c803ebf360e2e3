package topology

// Sizes of a drawing, in pixels.
const (
	margin   = 24
	gap      = 12 // between boxes side by side
	pad      = 10 // within a box
	indent   = 12 // of what is behind a bridge
	devWidth = 126
	devHigh  = 38
	migHigh  = 16
	rowHigh  = 20 // a line of text
	rowGap   = 7
	wireGap  = 6  // between NVLinks side by side
	headHigh = 62 // of a NUMA node's box
	slimNode = 190
)

// frame is a rectangle.
type frame struct{ x, y, w, h int }

// row is a line in the outline of a root complex: a bridge or a device.
type row struct {
	frame
	device int // -1: a bridge
	bridge *branch
	parent int // index of the row that it is behind; -1: the root complex
}

// rootBox is a root complex.
type rootBox struct {
	frame
	name  string
	rows  []row
	wires int // NVLinks that leave at its right side
	gpus  bool
}

// nodeBox is a NUMA node and the root complexes at it.
type nodeBox struct {
	frame
	node  *Node // nil: for devices whose node is not known
	roots []*rootBox
}

// outline lists what is behind a branch, line by line. It returns the rows and where the next one begins.
func (t *Topology) outline(b *branch, parent, x, y int, rows []row) ([]row, int) {
	for _, i := range b.devices {
		h := devHigh + migHigh*len(t.Devices[i].MIG)
		rows = append(rows, row{frame{x, y, devWidth, h}, i, nil, parent})
		y += h + rowGap
	}
	for _, sub := range b.branches {
		rows = append(rows, row{frame{x, y, devWidth, rowHigh}, -1, sub, parent})
		rows, y = t.outline(sub, len(rows)-1, x+indent, y+rowHigh+4, rows)
	}
	return rows, y
}

// newRoot lays out a root complex at 0, 0.
func (t *Topology) newRoot(name string, devices []int, wires map[int]int) *rootBox {
	r := &rootBox{name: name}
	var bottom int
	r.rows, bottom = t.outline(t.tree(devices), -1, pad+indent, rowHigh+pad, nil)
	for _, x := range r.rows {
		r.w = max(r.w, x.x+x.w)
		if x.device >= 0 {
			r.wires += wires[x.device]
			r.gpus = r.gpus || t.Devices[x.device].Kind == KindGPU
		}
	}
	if r.wires > 0 {
		r.w += r.wires*wireGap + wireGap/2
	}
	r.w, r.h = r.w+pad, bottom-rowGap+pad
	return r
}

// move shifts a root complex and everything in it.
func (r *rootBox) move(x, y int) {
	r.x, r.y = r.x+x, r.y+y
	for i := range r.rows {
		r.rows[i].x, r.rows[i].y = r.rows[i].x+x, r.rows[i].y+y
	}
}

// newNode lays out a NUMA node with its upper left corner at x, y. Root complexes with GPUs are side by side. The
// others are beside them, stacked as far as they fit.
func (t *Topology) newNode(n *Node, devices []int, wires map[int]int, x, y int) *nodeBox {
	b := &nodeBox{node: n, frame: frame{x: x, y: y}}
	high := 0
	for _, group := range t.byRoot(devices) {
		r := t.newRoot(t.Devices[group[0]].Root, group, wires)
		b.roots = append(b.roots, r)
		high = max(high, r.h)
	}
	at, top, wide := x+pad, y+headHigh, 0
	for _, gpus := range []bool{true, false} {
		for _, r := range b.roots {
			if r.gpus != gpus {
				continue
			}
			if wide > 0 && (gpus || top+r.h > y+headHigh+high) {
				at, top, wide = at+wide+gap, y+headHigh, 0
			}
			r.move(at, top)
			top, wide = top+r.h+gap/2, max(wide, r.w)
		}
		if wide > 0 {
			at, top, wide = at+wide+gap, y+headHigh, 0
		}
	}
	b.w, b.h = max(at-gap+pad-x, slimNode), headHigh
	if high > 0 {
		b.h += high + pad
	}
	return b
}

// byRoot groups devices by root complex, in their order.
func (t *Topology) byRoot(devices []int) (groups [][]int) {
	at := map[string]int{}
	for _, i := range devices {
		root := t.Devices[i].Root
		k, ok := at[root]
		if !ok {
			k = len(groups)
			at[root], groups = k, append(groups, nil)
		}
		groups[k] = append(groups[k], i)
	}
	return groups
}
