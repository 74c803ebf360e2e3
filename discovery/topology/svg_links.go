package topology

import "fmt"

// direct draws the NVLinks between pairs of GPUs, each in a track of its own below the boxes.
func (d *drawing) direct() {
	for _, p := range d.pairs {
		a, b := d.take(p[0]), d.take(p[1])
		d.bottom += rowHigh
		y := d.bottom
		d.c.path("wire", a.x, a.y, a.x, y, b.x, y, b.x, b.y)
		d.label(a.x, b.x, y, string(d.t.Links[p[0]][p[1]]))
	}
	if len(d.pairs) > 0 {
		d.bottom += gap
	}
}

// switches draws a bar for the switches of each NVLink fabric, and the lines to it.
func (d *drawing) switches() {
	var fabrics []string
	members := map[string][]int{}
	for i := range d.t.Devices {
		if !d.t.switched(i) {
			continue
		}
		f := d.t.Devices[i].Fabric
		if members[f] == nil {
			fabrics = append(fabrics, f)
		}
		members[f] = append(members[f], i)
	}
	for _, f := range fabrics {
		d.fabric(f, members[f])
	}
}

func (d *drawing) fabric(name string, gpus []int) {
	var ends []frame
	deep := 0
	for _, i := range gpus {
		e := d.take(i)
		ends, deep = append(ends, e), max(deep, e.h)
	}
	y := d.bottom + rowGap + 10 + (deep+1)*12
	bar := frame{ends[0].x - 30, y, 60, rowHigh + 4}
	for _, e := range ends {
		left, right := min(bar.x, e.x-30), max(bar.x+bar.w, e.x+30)
		bar.x, bar.w = left, right-left
	}
	text := "NVLink switches"
	if name != "" {
		text += ", fabric " + name
	}
	if n := len(text)*6 + 2*pad; bar.w < n { // one GPU alone
		bar.x, bar.w = max(bar.x+(bar.w-n)/2, margin), n
	}
	for k, e := range ends {
		d.c.path("wire", e.x, e.y, e.x, y)
		d.c.text("tiny nv", e.x+4, y-5-e.h*12, string(NV(d.t.Devices[gpus[k]].Switched)))
	}
	d.c.rect("nvswitch", bar, 5)
	d.c.text("small mid", bar.x+bar.w/2, y+16, text)
	d.bottom, d.right = y+bar.h, max(d.right, bar.x+bar.w)
}

// take returns the next unused line of a GPU.
func (d *drawing) take(gpu int) frame {
	e := d.ends[gpu][0]
	d.ends[gpu] = d.ends[gpu][1:]
	return e
}

// label writes on the line from a to b, or beside it if it is short.
func (d *drawing) label(a, b, y int, text string) {
	w, mid := len(text)*6+8, (a+b)/2
	if max(a, b)-min(a, b) < w+2*pad {
		mid = max(a, b) + w/2 + 4
	}
	d.c.rect("paper", frame{mid - w/2, y - 7, w, 14}, 3)
	d.c.text("tiny nv mid", mid, y+4, text)
	d.right = max(d.right, mid+w/2)
}

// legend explains the colours, and how the drawing shows the words of the matrix.
func (d *drawing) legend() {
	x, y := margin, d.bottom+margin
	for _, k := range []struct{ class, text string }{{"gpu", "GPU"}, {"nic", "NIC"}, {"switch", "PCIe switch or port"}, {"nvswitch", "NVLink"}} {
		d.c.rect(k.class, frame{x, y, 14, 14}, 3)
		d.c.text("small", x+20, y+11, k.text)
		x += 20 + len(k.text)*6 + 24
	}
	y += rowHigh + 10
	d.c.text("small", margin, y, fmt.Sprintf("One switch: %s; several: %s. One root complex: %s. One NUMA node: %s. Otherwise: %s.", PIX, PXB, PHB, NODE, SYS))
	d.bottom = y
}
