package gpu

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Kind is what an Event tells.
type Kind string

const (
	StateChanged Kind = "state"   // of the Inventory; there is no Device
	Added        Kind = "added"   // a GPU that was not there
	Removed      Kind = "removed" // the Device as it was
	LostOne      Kind = "lost"    // it stays listed
	BackAgain    Kind = "back"    // it was lost, and works
	Split        Kind = "mig"     // MIG was switched or its instances changed
	Changed      Kind = "changed" // anything else: NVLinks, fabric
	XidArrived   Kind = "xid"     // Device.Xid has it
)

// Event is one change.
type Event struct {
	Kind   Kind
	Device Device
	Text   string // in words
}

// xidQuiet is how long an Xid of the same GPU and code is only counted: an application that fails can cause hundreds.
const xidQuiet = time.Minute

// xid notes an error of a GPU, and tells it unless the same was told lately.
func (w *Watcher) xid(r report) {
	now := time.Now()
	w.mu.Lock()
	i := slices.IndexFunc(w.now.Devices, func(d Device) bool { return d.UUID == r.uuid })
	if i < 0 {
		w.mu.Unlock()
		return
	}
	w.now.Devices = slices.Clone(w.now.Devices) // who has the old inventory keeps it
	d := &w.now.Devices[i]
	x := Xid{Code: r.code, When: now, Instance: r.instance, Count: 1}
	if d.Xid != nil {
		x.Count += d.Xid.Count
	}
	d.Xid = &x
	e, inventory := Event{Kind: XidArrived, Device: *d, Text: XidText(r.code)}, w.now
	w.mu.Unlock()
	k := told{r.uuid, r.code}
	if last, ok := w.told[k]; ok && now.Sub(last) < xidQuiet {
		return
	}
	w.told[k] = now
	w.tell(inventory, e)
}

// carry keeps in next what only old knows: past errors, and what a lost GPU was.
func carry(old, next Inventory) Inventory {
	for i := range next.Devices {
		d := &next.Devices[i]
		if d.UUID == "" { // cannot be opened any more: it is the one that was at its place
			j := slices.IndexFunc(old.Devices, func(o Device) bool { return o.Index == d.Index })
			if _, elsewhere := next.Device(old.at(j).UUID); j >= 0 && !elsewhere {
				lost, problem := d.Lost, d.Problem
				*d = old.Devices[j]
				d.Lost, d.Problem = lost, problem
			}
		}
		if was, ok := old.Device(d.UUID); ok {
			d.Xid = was.Xid
		}
	}
	return next
}

// at is a device, or none for -1.
func (i Inventory) at(n int) Device {
	if n < 0 {
		return Device{}
	}
	return i.Devices[n]
}

// changes lists what differs, GPUs by UUID.
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

// same says whether both are one GPU.
func (d Device) same(o Device) bool {
	if d.UUID == "" && o.UUID == "" {
		return d.Index == o.Index
	}
	return d.UUID == o.UUID
}

// since is the most important change of a GPU, of Kind "" when there is none.
func (d Device) since(was Device) Event {
	d.Index = was.Index // of no importance
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

// difference says what of a GPU changed.
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

// LinksUp counts NVLinks that are up.
func (d Device) LinksUp() int {
	n := 0
	for _, l := range d.Links {
		if l.Active {
			n++
		}
	}
	return n
}
