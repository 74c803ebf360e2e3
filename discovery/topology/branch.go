package topology

// branch is a bridge and what is behind it, as a drawing shows them in a root complex. A bridge with only one way on
// is left out, because what counts is where ways part.
type branch struct {
	bridge   string // PCI address; empty: the root complex itself
	depth    int    // bridges from the root complex, this one included
	devices  []int
	branches []*branch
}

// tree makes the branches of the root complex that the devices share.
func (t *Topology) tree(devices []int) *branch {
	root := new(branch)
	for _, i := range devices {
		at := root
		for depth, bridge := range t.Devices[i].Bridges {
			at = at.below(bridge, depth+1)
		}
		at.devices = append(at.devices, i)
	}
	root.prune()
	return root
}

// below returns the branch of a bridge that is directly behind b.
func (b *branch) below(bridge string, depth int) *branch {
	for _, x := range b.branches {
		if x.bridge == bridge {
			return x
		}
	}
	x := &branch{bridge: bridge, depth: depth}
	b.branches = append(b.branches, x)
	return x
}

// prune removes bridges with only one way on. Of a chain that leads to a single device, the last bridge is the port
// that the device is plugged into. The bridge above that port, if there is one, is a switch, and stays.
func (b *branch) prune() {
	kept := b.branches[:0]
	for _, x := range b.branches {
		end, above, steps := x, x, 1
		for len(end.devices) == 0 && len(end.branches) == 1 {
			above, end, steps = end, end.branches[0], steps+1
		}
		switch {
		case len(end.branches) > 0 || len(end.devices) > 1:
			end.prune()
			kept = append(kept, end)
		case steps == 1:
			b.devices = append(b.devices, end.devices...)
		default:
			kept = append(kept, &branch{bridge: above.bridge, depth: above.depth, devices: end.devices})
		}
	}
	b.branches = kept
}
