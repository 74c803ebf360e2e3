package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// stateFile is the file's form. Fields are only added.
type stateFile struct {
	Version   int          `json:"version"`
	Sessions  []remembered `json:"sessions"`
	Instances []instance   `json:"instances,omitempty"`
	Past      []replaced   `json:"past,omitempty"`
}

// replaced are instances of an engine that must not come back, newest last.
type replaced struct {
	Engine    string   `json:"engine"`
	Owner     string   `json:"owner"`
	Instances []string `json:"instances"`
}

// instance is one of an engine's in the file, with all ranks that it had here, those that have left, too.
type instance struct {
	Engine   string   `json:"engine"`
	Instance string   `json:"instance"`
	Owner    string   `json:"owner"`
	Ranks    []uint32 `json:"ranks"`
}

const (
	stateVersion  = 1
	maxStateBytes = 64 << 20 // more than clients can make it, within the default limits of sessions
)

// loadState reads what the daemon before left. A file that makes no sense is set aside and named in the error; the state is usable all
// the same.
func loadState(path string) (*state, error) {
	st := newState(path)
	if path == "" {
		return st, nil
	}
	f, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return st, nil
	case err != nil:
		aside := path + ".broken"
		return st, errors.Join(fmt.Errorf("state %s: %w: it is set aside as %s, and sessions of before are taken for new ones", path, err, aside), os.Rename(path, aside))
	}
	st.recall(f)
	return st, nil
}

// recall awaits the sessions of the daemon before.
func (st *state) recall(f *stateFile) {
	for _, r := range f.Sessions {
		r.before = true
		st.all[r.Session] = r
		if r.Role == transfer.Worker {
			st.knows(r.key(), r.Rank)
		}
	}
	for _, i := range f.Instances {
		st.knows(instanceKey{i.Engine, i.Owner, i.Instance}, i.Ranks...)
	}
	for _, p := range f.Past {
		st.past[engineKey{p.Engine, p.Owner}] = p.Instances[max(0, len(p.Instances)-keptPast):]
	}
	st.tidy()
}

func readState(path string) (*stateFile, error) {
	if i, err := os.Stat(path); err != nil {
		return nil, err
	} else if !i.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file (%v)", i.Mode())
	} else if i.Size() > maxStateBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are read", i.Size(), maxStateBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseState(b)
}

// parseState leaves out who does not come back to this daemon: ends of pipes, and roles of a later version.
func parseState(b []byte) (*stateFile, error) {
	f := &stateFile{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, err
	}
	if f.Version < 1 {
		return nil, fmt.Errorf("version is %d: must be at least 1", f.Version)
	}
	f.Sessions = slices.DeleteFunc(f.Sessions, func(r remembered) bool { return r.Role >= transfer.Endpoint })
	for i := range f.Sessions {
		if err := f.Sessions[i].check(); err != nil {
			return nil, fmt.Errorf("session %#x: %w", uint64(f.Sessions[i].Session), err)
		}
	}
	for i := range f.Instances {
		if ranks := f.Instances[i].Ranks; len(ranks) > maxWorld || len(ranks) > 0 && slices.Max(ranks) >= maxWorld {
			return nil, fmt.Errorf("instance %q has %d ranks, the highest is %d: must be below %d", f.Instances[i].Instance, len(ranks), slices.Max(ranks), maxWorld)
		}
	}
	return f, nil
}

// check says why no HELLO can have made it that session: nobody else could come back as it.
func (r *remembered) check() error {
	var h ring.Hello
	for _, n := range []struct {
		name, text string
		limit      int
	}{{"engine", r.Engine, len(h.Engine)}, {"instance", r.Instance, len(h.Instance)}} {
		if n.text == "" || len(n.text) > n.limit {
			return fmt.Errorf("%s of %d bytes: must be 1 to %d", n.name, len(n.text), n.limit)
		}
		if err := ring.CheckText([]byte(n.text), n.name); err != nil {
			return err
		}
	}
	secret, err := hex.DecodeString(r.Secret)
	switch {
	case r.Session == 0 || r.Role == 0:
		return errors.New("its id or its role is 0")
	case err != nil || len(secret) != sha256.Size:
		return fmt.Errorf("secret_sha256 of %d bytes: must be %d digits", len(r.Secret), 2*sha256.Size)
	case r.Role == transfer.Worker && r.Rank >= maxWorld:
		return fmt.Errorf("rank is %d: must be below %d", r.Rank, maxWorld)
	case r.Role == transfer.Scheduler && r.Rank != transfer.NoRank:
		return fmt.Errorf("rank is %d: a scheduler has none (%d)", r.Rank, uint32(transfer.NoRank))
	}
	return nil
}

// save brings the file up to date. Of many that ask at once one writes for all. It is not synced: it has to outlive the daemon, not the
// machine, with which all sessions end.
func (st *state) save() error {
	if st.path == "" {
		return nil
	}
	st.mu.Lock()
	want := st.changes
	st.mu.Unlock()
	st.write.Lock()
	defer st.write.Unlock()
	if st.written >= want {
		return nil
	}
	b, has, err := st.encode()
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	next := st.path + ".next"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := os.Rename(next, st.path); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	st.written = has
	return nil
}

func bySession(a, b remembered) int { return cmp.Compare(a.Session, b.Session) }

// encode returns the file, and how many changes are in it.
func (st *state) encode() (b []byte, changes uint64, err error) {
	st.mu.Lock()
	f, changes := stateFile{Version: stateVersion, Sessions: []remembered{}}, st.changes
	for _, r := range st.all {
		f.Sessions = append(f.Sessions, r)
	}
	for key, past := range st.past {
		f.Past = append(f.Past, replaced{key.name, key.owner, past})
	}
	for key, ranks := range st.had {
		f.Instances = append(f.Instances, instance{key.engine, key.instance, key.owner, slices.Sorted(slices.Values(ranks))})
	}
	st.mu.Unlock()
	slices.SortFunc(f.Sessions, bySession)
	slices.SortFunc(f.Instances, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Instance, b.Instance))
	})
	slices.SortFunc(f.Past, func(a, b replaced) int { return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Owner, b.Owner)) })
	b, err = json.Marshal(f)
	return b, changes, err
}
