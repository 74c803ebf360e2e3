package topology

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
)

// TestSVG: the drawing of each machine.
func TestSVG(t *testing.T) {
	for _, name := range machines(t) {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Read(machine(t, name)).SVG(&out, name); err != nil {
				t.Fatal(err)
			}
			wellFormed(t, out.Bytes())
			golden(t, name+".svg", out.Bytes())
		})
	}
}

// wellFormed reads all of an XML file.
func wellFormed(t *testing.T, text []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, text)
		}
	}
}

// TestDrawingHolds: whatever the machine, each device is drawn once, on the page and over nothing else, and names may be anything.
func TestDrawingHolds(t *testing.T) {
	odd, _, _ := machine(t, "no-gpu")
	var mesh []GPU
	for i := range 8 { // every GPU joined to every other, nowhere in /sys
		g := GPU{Index: i, Name: `<"&'>`, PCI: fmt.Sprintf("0000:%02x:00.0", i+1), NUMA: i % 3, MemoryNode: -1}
		for j := range 8 {
			if j != i {
				g.Links = append(g.Links, NVLink{fmt.Sprintf("0000:%02x:00.0", j+1), 1})
			}
		}
		mesh = append(mesh, g)
	}
	home := slices.Clone(mesh) // whose memory is said to be that of the NUMA node that they are at
	for i := range home {
		home[i].MemoryNode = home[i].NUMA
	}
	tops := map[string]*Topology{"mesh": Read(odd, mesh, nil), "home": Read(odd, home, nil), "nothing": Read(t.TempDir(), nil, nil)}
	for _, name := range machines(t) {
		tops[name] = Read(machine(t, name))
	}
	for name, top := range tops {
		d := drawing{t: top, wires: top.wires(), pairs: top.pairs(), ends: map[int][]frame{}}
		d.layOut()
		d.draw()
		wellFormed(t, []byte(d.page(name)))
		var drawn []frame
		seen := map[int]bool{}
		for _, n := range d.nodes {
			for _, r := range n.roots {
				if !r.within(n.frame) {
					t.Errorf("%s: %s is not within its node", name, r.name)
				}
				for _, w := range r.rows {
					if !w.within(r.frame) || slices.ContainsFunc(drawn, w.overlaps) {
						t.Errorf("%s: %+v is out of place", name, w)
					}
					drawn = append(drawn, w.frame)
					if w.device >= 0 {
						if seen[w.device] {
							t.Errorf("%s: device %d is drawn twice", name, w.device)
						}
						seen[w.device] = true
					}
				}
			}
			if !n.within(frame{0, 0, d.right, d.bottom}) {
				t.Errorf("%s: a node is beyond the page", name)
			}
		}
		if len(seen) != len(top.Devices) {
			t.Errorf("%s: %d devices are drawn, of %d", name, len(seen), len(top.Devices))
		}
		for i, left := range d.ends {
			if len(left) > 0 {
				t.Errorf("%s: %d lines of device %d lead nowhere", name, len(left), i)
			}
		}
	}
}

func (f frame) within(o frame) bool {
	return f.x >= o.x && f.y >= o.y && f.x+f.w <= o.x+o.w && f.y+f.h <= o.y+o.h
}

func (f frame) overlaps(o frame) bool {
	return f.x < o.x+o.w && o.x < f.x+f.w && f.y < o.y+o.h && o.y < f.y+f.h
}
