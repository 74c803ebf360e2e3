package transfer

import (
	"cmp"
	"slices"
)

// PipeInfo is a pipe or lookup buffer as this node sees it: the one whose home is here, or the ends here of one whose
// home is elsewhere. Contents are not in it.
type PipeInfo struct {
	Name     string
	Buffer   bool
	Home     string // node of the sender or owner; "": none has come yet
	Engine   string // of the sender or owner, when it is here
	State    string // "waiting" (no home), "open", "sealed", "lingering" (its sender is gone); "remote": only its receiving ends are here
	Ends     int    // receiving ones that are known here
	Items    int
	Bytes    uint64
	Capacity uint64
	Waiting  int // gets that wait for an item
	InDoubt  int // items sent to a node that has not said how that ended
	// Delivered counts items that were received.
	Delivered uint64
}

// Kind is "pipe" or "buffer".
func (i *PipeInfo) Kind() string {
	if i.Buffer {
		return "buffer"
	}
	return "pipe"
}

// pipes lists what there is, by name; pipes first.
func (m *Machine) pipes() []PipeInfo {
	var out []PipeInfo
	doubts := map[*place]int{}
	for _, k := range m.doubts {
		doubts[k.place]++
	}
	for _, p := range m.places {
		if p.home == nil && len(p.ends) == 0 && len(p.early) == 0 {
			continue // only its end is kept (unheard)
		}
		i := p.info(m)
		i.InDoubt = doubts[p]
		out = append(out, i)
	}
	remote := map[PipeInfo]*PipeInfo{}
	for b := range m.bound {
		if b.home != nil || b.peer == "" || b.peer == m.cfg.Node {
			continue
		}
		key := PipeInfo{Name: b.name.name, Buffer: b.name.buffer, Home: b.peer, State: "remote"}
		r := remote[key]
		if r == nil {
			own := key
			r = &own
			remote[key] = r
		}
		r.Ends++
		r.Waiting += b.gets
	}
	for _, r := range remote {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b PipeInfo) int {
		order := map[bool]int{true: 1}
		return cmp.Or(cmp.Compare(order[a.Buffer], order[b.Buffer]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Home, b.Home))
	})
	return out
}

func (p *place) info(m *Machine) PipeInfo {
	i := PipeInfo{Name: p.name, Buffer: p.buffer, State: "waiting", Waiting: len(p.early)}
	for _, e := range p.ends {
		if e.bound {
			i.Ends++
		}
	}
	h := p.home
	if h == nil {
		return i
	}
	i.Home, i.Engine, i.State = m.cfg.Node, h.bind.by.engine.key.name, "open"
	switch {
	case h.gone != nil:
		i.State = "lingering"
	case h.sealed:
		i.State = "sealed"
	}
	i.Items, i.Bytes, i.Capacity, i.Delivered = h.items, h.bytes, h.capacity, h.delivered
	for _, list := range h.waiting {
		i.Waiting += len(list)
	}
	for _, list := range h.keyWait {
		i.Waiting += len(list)
	}
	i.Waiting += h.lookup.Queries()
	return i
}
