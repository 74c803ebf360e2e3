package gpu

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Kind says what an Event reports.
type Kind string

const (
	StateChanged Kind = "state"   // the State or Reason of the Inventory; Device is empty
	Added        Kind = "added"   // a GPU that was not there
	Removed      Kind = "removed" // Device is as it was
	LostOne      Kind = "lost"    // the GPU stays listed
	BackAgain    Kind = "back"    // it was lost, and works again
	Split        Kind = "mig"     // MIG was switched or its instances changed
	Changed      Kind = "changed" // anything else: NVLinks, fabric
	XidArrived   Kind = "xid"     // see Device.Xid
)

// Event is one change.
type Event struct {
	Kind   Kind
	Device Device
	Text   string // in words
}

// xidQuiet is how long further Xids of the same GPU and code are only counted: a failing application can cause
// hundreds.
const xidQuiet = time.Minute

// xid notes an error of a GPU, and reports it unless the same was reported lately.
func (w *Watcher) xid(r report) {
	now := time.Now()
	w.mu.Lock()
	i := slices.IndexFunc(w.now.Devices, func(d Device) bool { return d.UUID == r.uuid })
	if i < 0 {
		w.mu.Unlock()
		return
	}
	w.now.Devices = slices.Clone(w.now.Devices) // whoever has the old inventory keeps it as it was
	d := &w.now.Devices[i]
	x := Xid{Code: r.code, When: now, Instance: r.instance, Count: 1}
	if d.Xid != nil {
		x.Count += d.Xid.Count
	}
	d.Xid, w.xids[r.uuid] = &x, &x
	e, inventory := Event{Kind: XidArrived, Device: *d, Text: XidText(r.code)}, w.now
	w.mu.Unlock()
	k := told{r.uuid, r.code}
	if last, ok := w.told[k]; ok && now.Sub(last) < xidQuiet {
		return
	}
	w.told[k] = now
	w.tell(inventory, e)
}

// carry copies to next what NVML does not know: past errors, and what a lost GPU was.
func carry(old, next Inventory, xids map[string]*Xid) Inventory {
	for i := range next.Devices {
		d := &next.Devices[i]
		if d.UUID == "" { // it cannot be opened any more, so it is the GPU that had its index
			j := slices.IndexFunc(old.Devices, func(o Device) bool { return o.Index == d.Index })
			if _, elsewhere := next.Device(old.at(j).UUID); j >= 0 && !elsewhere {
				lost, problem := d.Lost, d.Problem
				*d = old.Devices[j]
				d.Lost, d.Problem = lost, problem
			}
		}
		d.Xid = xids[d.UUID]
	}
	return next
}

// at returns a device, or an empty one for -1.
func (i Inventory) at(n int) Device {
	if n < 0 {
		return Device{}
	}
	return i.Devices[n]
}

// changes lists the differences. GPUs are compared by UUID.
func changes(old, next Inventory) []Event {
	var out []Event
	if old.State != next.State || old.Reason != next.Reason {
		out = append(out, Event{Kind: StateChanged, Text: next.Reason})
	}
	for _, was := range old.Devices {
		if !slices.ContainsFunc(next.Devices, was.same) {
			out = append(out, Event{Removed, was, "the GPU is gone"})
		}
	}
	for _, d := range next.Devices {
		i := slices.IndexFunc(old.Devices, d.same)
		if i < 0 {
			out = append(out, Event{Added, d, d.Problem})
			if d.Lost {
				out = append(out, Event{LostOne, d, d.Problem})
			}
			continue
		}
		if e := d.since(old.Devices[i]); e.Kind != "" {
			out = append(out, e)
		}
	}
	return out
}

// same says whether both describe the same GPU.
func (d Device) same(o Device) bool {
	if d.UUID == "" && o.UUID == "" {
		return d.Index == o.Index
	}
	return d.UUID == o.UUID
}

// since returns the most important change of a GPU, of Kind "" if there is none.
func (d Device) since(was Device) Event {
	d.Index = was.Index // a new index is no change
	switch {
	case d.Lost && !was.Lost:
		return Event{LostOne, d, d.Problem}
	case was.Lost && !d.Lost:
		return Event{BackAgain, d, "the GPU works again"}
	case d.MIG != was.MIG || !slices.Equal(d.Instances, was.Instances):
		return Event{Split, d, fmt.Sprintf("MIG: %d instances, were %d", len(d.Instances), len(was.Instances))}
	case !reflect.DeepEqual(d, was):
		return Event{Changed, d, difference(was, d)}
	}
	return Event{}
}

// difference says in words what of a GPU changed.
func difference(was, is Device) string {
	switch {
	case was.Fabric != is.Fabric:
		return "its place in the NVLink fabric changed"
	case !slices.Equal(was.Links, is.Links):
		return fmt.Sprintf("NVLinks: %d of %d are up, were %d", is.LinksUp(), len(is.Links), was.LinksUp())
	case was.Problem != is.Problem && is.Problem != "":
		return is.Problem
	}
	return "what NVML says of it changed"
}

// LinksUp counts the NVLinks that are up.
func (d Device) LinksUp() int {
	n := 0
	for _, l := range d.Links {
		if l.Active {
			n++
		}
	}
	return n
}
