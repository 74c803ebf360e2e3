package topology

import "slices"

// between returns the way over PCI between two devices.
func between(a, b *Device) Word {
	switch {
	case a.Root == "" || b.Root == "":
		return Unknown
	case a.Root != b.Root && (a.Node < 0 || a.Node != b.Node):
		return SYS // also if a node is not known: it is the worst case
	case a.Root != b.Root:
		return NODE
	}
	x, y := a.hops(), b.hops()
	same := 0
	for same < len(x) && same < len(y) && x[same] == y[same] {
		same++
	}
	switch below := max(len(x), len(y)) - same; {
	case same == 0 && below > 0:
		return PHB
	case below <= 2: // the device, behind a downstream port of the bridge that both share
		return PIX
	}
	return PXB
}

// hops returns the bridges down to the device, and the device.
func (d *Device) hops() []string { return append(slices.Clip(d.Bridges), d.PCI) }

// toMemory returns the way between device i and a NUMA node's memory. A GPU's own memory is as far as the GPU.
func (t *Topology) toMemory(i, node int) Word {
	for j := range t.Devices {
		if t.Devices[j].MemoryNode == node {
			return t.Links[i][j]
		}
	}
	switch d := &t.Devices[i]; d.Node {
	case node:
		return PHB
	case -1:
		return Unknown
	}
	return SYS
}

// nvlinks returns how many NVLinks join two GPUs: direct ones, or as many as both have to switches of the same
// fabric; 0: none. Instances of a split GPU cannot use NVLink.
func nvlinks(a, b *GPU) int {
	if len(a.MIG) > 0 || len(b.MIG) > 0 {
		return 0
	}
	direct := max(a.linksTo(b), b.linksTo(a)) // one end may have been asked before the link came up
	if direct > 0 {
		return direct
	}
	if a.Fabric != b.Fabric {
		return 0
	}
	return min(a.SwitchLinks, b.SwitchLinks)
}

func (g *GPU) linksTo(peer *GPU) (n int) {
	want, err := Address(peer.PCI)
	if err != nil {
		return 0
	}
	for _, l := range g.Links {
		if at, err := Address(l.Peer); err == nil && at == want {
			n += l.Count
		}
	}
	return n
}
