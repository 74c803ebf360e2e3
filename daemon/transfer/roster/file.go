package roster

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// File is what one daemon leaves to the next. Fields are only ever added.
type File struct {
	Version   int        `json:"version"`
	Sessions  []Session  `json:"sessions"`
	Instances []Instance `json:"instances,omitempty"`
	Past      []Replaced `json:"past,omitempty"`
}

// Version is the version of the files written.
const Version = 1

// Instance is one of an engine's instances, with all ranks that it had here, including those that have left.
type Instance struct {
	Engine   string   `json:"engine"`
	Instance string   `json:"instance"`
	Owner    string   `json:"owner"`
	Ranks    []uint32 `json:"ranks"`
	Lost     bool     `json:"lost,omitempty"` // some of its sessions were given up; an instance without sessions counts as lost, too
}

// Replaced are the instances of an engine that must not come back, newest last.
type Replaced struct {
	Engine    string   `json:"engine"`
	Owner     string   `json:"owner"`
	Instances []string `json:"instances"`
}

// File returns what the next daemon has to know.
func (r *Roster) File() *File {
	f := &File{Version: Version, Sessions: []Session{}}
	for _, s := range r.all {
		f.Sessions = append(f.Sessions, s)
	}
	for key, past := range r.past {
		f.Past = append(f.Past, Replaced{key.Name, key.Owner, past})
	}
	for key, ranks := range r.had {
		f.Instances = append(f.Instances, Instance{key.Name, key.name, key.Owner, slices.Sorted(slices.Values(ranks)), slices.Contains(r.lost, key)})
	}
	slices.SortFunc(f.Sessions, bySession)
	slices.SortFunc(f.Instances, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Instance, b.Instance))
	})
	slices.SortFunc(f.Past, func(a, b Replaced) int { return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Owner, b.Owner)) })
	return f
}

// Recall begins to await the sessions of the daemon before.
func (r *Roster) Recall(f *File) {
	for _, s := range f.Sessions {
		s.before, s.resumed, s.client, s.formerly = true, false, nil, nil
		r.all[s.ID] = s
		if s.Role == transfer.Worker {
			r.knows(s.instance(), s.Rank)
		}
	}
	here := map[instance]bool{}
	for _, s := range r.all {
		here[s.instance()] = true
	}
	for _, i := range f.Instances {
		key := instance{Engine{i.Engine, i.Owner}, i.Instance}
		if r.knows(key, i.Ranks...); i.Lost || !here[key] {
			r.loses(key)
		}
	}
	for _, p := range f.Past {
		r.past[Engine{p.Engine, p.Owner}] = p.Instances[max(0, len(p.Instances)-KeptPast):]
	}
	r.tidy()
}
