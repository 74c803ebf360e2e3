package daemon

import (
	"context"
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// openPlaces finds out where threads may run. It never fails: where that cannot be known, threads stay where they are
// put.
func (d *Daemon) openPlaces() {
	cpus, err := sys.ThreadCPUs() // of this daemon, whoever chose them
	if err != nil {
		d.unplaced = err.Error()
		return
	}
	d.places, d.unplaced = place.New(d.hardware.now.Load().Nodes, cpus, sys.PageNodes)
	for _, s := range d.places.Spots() {
		if !s.Own {
			d.log.Warn("the daemon may not use a CPU of a NUMA node: what goes to its memory is moved from others", "node", s.Node, "cpus", s.CPUs)
		}
	}
}

// Topology implements admin.Source.
func (v view) Topology(context.Context) (admin.Topology, error) {
	t := v.hardware.now.Load()
	return admin.Topology{Nodes: t.Nodes, Devices: t.Devices, Links: t.Links, Memory: t.Memory, Nearest: nearest(t), Placement: v.placement()}, nil
}

// placement says which threads run where, and where regions lie.
func (v view) placement() admin.Placement {
	p := admin.Placement{Active: v.places != nil, Reason: v.unplaced, Nodes: []admin.PlacementNode{}, Regions: []admin.PlacementRegion{}}
	if err := v.places.Problem(); err != nil {
		p.Active, p.Reason = false, err.Error()
	}
	for _, s := range v.places.Spots() {
		p.Nodes = append(p.Nodes, admin.PlacementNode{Node: s.Node, CPUs: s.CPUs, Own: s.Own, Threads: s.Threads, Slices: s.Slices, Bytes: s.Bytes})
	}
	for _, s := range v.sessions.Sessions() {
		for _, r := range s.Regions {
			p.Regions = append(p.Regions, admin.PlacementRegion{Region: number(uint64(r.ID)), Engine: s.Engine, Nodes: v.lies(&s, &r)})
		}
	}
	return p
}

// lies returns on which NUMA nodes a region lies, by a sample of its pages. It returns nothing if the kernel does not
// say, or if the daemon has not touched the region yet.
func (v view) lies(s *session.Info, r *memory.Info) []admin.Share {
	out := []admin.Share{}
	b, ok := v.sessions.Resolve(s.ID, plan.Run{Region: r.ID, Len: r.Bytes})
	if !ok {
		return out
	}
	shares, err := place.Sample(b, sys.PageNodes)
	if err != nil {
		return out
	}
	for _, x := range shares {
		out = append(out, admin.Share(x))
	}
	return out
}

// memoryNode returns the NUMA node on which most registered memory lies, or -1 if that is not known.
func (v view) memoryNode() int {
	bytes := map[int]uint64{}
	for _, s := range v.sessions.Sessions() {
		for _, r := range s.Regions {
			shares, pages := v.lies(&s, &r), 0
			for _, x := range shares {
				pages += x.Pages
			}
			for _, x := range shares {
				bytes[x.Node] += r.Bytes / uint64(pages) * uint64(x.Pages)
			}
		}
	}
	return heaviest(bytes)
}

// heaviest returns the node with the most bytes, the lowest of equals, or -1 for none.
func heaviest(bytes map[int]uint64) int {
	best := -1
	for node, n := range bytes {
		if best < 0 || n > bytes[best] || n == bytes[best] && node < best {
			best = node
		}
	}
	return best
}

// placementState returns placement in a few words.
func (v view) placementState() string {
	switch err := v.places.Problem(); {
	case v.places == nil:
		return "off: " + v.unplaced
	case err != nil:
		return "off: " + err.Error()
	}
	return fmt.Sprintf("on, %d NUMA nodes", v.places.Count())
}
