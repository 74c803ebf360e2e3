package session

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// state is what outlives the daemon: who has sessions, and by what they prove it. It lies in a file that is replaced as a whole,
// before a client hears that its session is open. What sessions own is not in it: clients bring that along.
type state struct {
	path string // "": nothing is kept

	mu      sync.Mutex
	all     map[transfer.SessionID]remembered // of now, and of before the restart
	had     map[instanceKey][]uint32          // of each instance that has sessions: the ranks that it has, or had
	past    map[engineKey][]string            // instances that were replaced, of engines that have sessions
	patient bool                              // who has not come back is still awaited
	changes uint64

	write   sync.Mutex // one at a time
	written uint64     // changes that are in the file
}

// remembered is one session in the file.
type remembered struct {
	Session  transfer.SessionID `json:"session"`
	Engine   string             `json:"engine"`
	Instance string             `json:"instance"`
	Owner    string             `json:"owner"`
	Role     transfer.Role      `json:"role"`
	Rank     uint32             `json:"rank"`
	Layout   bool               `json:"layout"`
	Secret   string             `json:"secret_sha256"`
	Changed  bool               `json:"changed,omitempty"` // a scheduler's, some of whose submissions may be about other ranks than there are
	before   bool               // of the daemon before, and not back yet
	resumed  bool               // it brought submissions
	live     *session           // nil: before
}

type instanceKey struct{ engine, owner, instance string }

func (r *remembered) key() instanceKey { return instanceKey{r.Engine, r.Owner, r.Instance} }

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
	maxStateBytes = 16 << 20
)

func newState(path string) *state {
	return &state{path: path, all: map[transfer.SessionID]remembered{}, had: map[instanceKey][]uint32{}, past: map[engineKey][]string{}, patient: true}
}

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

// knows notes ranks of an instance.
func (st *state) knows(key instanceKey, ranks ...uint32) {
	for _, r := range ranks {
		if !slices.Contains(st.had[key], r) {
			st.had[key] = append(st.had[key], r)
		}
	}
}

// tidy forgets the ranks of instances without sessions.
func (st *state) tidy() {
	live := map[instanceKey]bool{}
	for _, r := range st.all {
		live[r.key()] = true
	}
	maps.DeleteFunc(st.had, func(key instanceKey, _ []uint32) bool { return !live[key] })
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
	engines := map[engineKey]struct{}{}
	for _, r := range st.all {
		f.Sessions = append(f.Sessions, r)
		engines[engineKey{r.Engine, r.Owner}] = struct{}{}
	}
	for key, past := range st.past {
		if _, ok := engines[key]; !ok || len(past) == 0 {
			delete(st.past, key)
			continue
		}
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

// put notes a session, in place of the one that it resumes, and of those that it makes obsolete: of its rank, of older instances. Who had a
// layout before is about to set it again, perhaps to the daemon after this one. It returns what was known of it.
func (st *state) put(s *session, resumes transfer.SessionID, secret *[32]byte, past []string) (k known) {
	sum := sha256.Sum256(s.secret[:])
	st.mu.Lock()
	defer st.mu.Unlock()
	st.changes++
	st.past[engineKey{s.who.Engine, s.who.Owner}] = past
	old, there := st.all[resumes]
	if k.resumed = there && old.provedBy(secret, &s.who); !k.resumed {
		old = remembered{}
	} else {
		delete(st.all, resumes)
		if old.before {
			s.formerly = &old
		}
	}
	layout := old.Layout
	for id, r := range st.all {
		same := r.Instance == s.who.Instance
		if r.Engine != s.who.Engine || r.Owner != s.who.Owner || same && !r.before {
			continue
		}
		if rank := s.who.Role == transfer.Worker && r.Role == transfer.Worker && r.Rank == s.who.Rank; rank || !same {
			layout = layout || same && r.Layout
			delete(st.all, id)
		}
	}
	key := instanceKey{s.who.Engine, s.who.Owner, s.who.Instance}
	if s.who.Role == transfer.Worker && !k.resumed {
		st.another(key)
	}
	k.changed = old.Changed
	st.all[s.id] = remembered{
		Changed: old.Changed, resumed: k.resumed, live: s,
		Session: s.id, Engine: s.who.Engine, Instance: s.who.Instance, Owner: s.who.Owner, Role: s.who.Role, Rank: s.who.Rank, Layout: layout, Secret: hex.EncodeToString(sum[:]),
	}
	k.had = slices.Clone(st.had[key])
	if s.who.Role == transfer.Worker {
		st.knows(key, s.who.Rank)
	}
	st.tidy()
	return k
}

// known is what the state says of a session that is opened.
type known struct {
	had     []uint32 // ranks of its instance
	resumed bool     // it is one of before
	changed bool
}

// another notes that a worker came to an instance, and was not one of before. What schedulers had submitted is not about it.
func (st *state) another(key instanceKey) {
	for id, r := range st.all {
		if r.Role == transfer.Scheduler && r.key() == key && (r.live == nil || r.resumed || r.live.count.submissions.Load() > 0) {
			r.Changed = true
			st.all[id] = r
		}
	}
}

// hasLayout notes that a session comes back with one.
func (st *state) hasLayout(id transfer.SessionID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if r, ok := st.all[id]; ok {
		r.Layout = true
		st.all[id] = r
		st.changes++
	}
}

// leave is for a session that is over. Who lost its connection alone may never have heard that it was back, and comes again as who it was.
func (st *state) leave(s *session, again bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	r, ok := st.all[s.id]
	if ok && again && s.formerly != nil && st.patient {
		old := *s.formerly
		old.Changed = old.Changed || r.Changed
		st.all[old.Session] = old
		st.changes++
	}
	st.forget(s.id)
}

// drop forgets a session that does not come back.
func (st *state) drop(id transfer.SessionID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.forget(id)
}

func (st *state) forget(id transfer.SessionID) {
	if _, ok := st.all[id]; ok {
		delete(st.all, id)
		st.tidy()
		st.changes++
	}
}

// awaited lists who is not back yet, in the order in which they came.
func (st *state) awaited() []remembered {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []remembered
	for _, r := range st.all {
		if r.before {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, bySession)
	return out
}

// giveUp forgets who is not back by now.
func (st *state) giveUp() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.patient = false
	for id, r := range st.all {
		if r.before {
			delete(st.all, id)
			st.changes++
		}
	}
	st.tidy()
}

// mayResume judges who wants to come back. A session that is not known is a new one.
func (st *state) mayResume(id transfer.SessionID, secret *[32]byte, who *identity) error {
	st.mu.Lock()
	r, known := st.all[id]
	st.mu.Unlock()
	if !known {
		return nil
	}
	if !r.provedBy(secret, who) {
		return refuse(transfer.Denied, "session %#x is not yours to resume", uint64(id))
	}
	return nil
}

// provedBy says whether a client that says this is the session's.
func (r *remembered) provedBy(secret *[32]byte, who *identity) bool {
	sum := sha256.Sum256(secret[:])
	want, err := hex.DecodeString(r.Secret)
	return err == nil && subtle.ConstantTimeCompare(sum[:], want) == 1 && r.Owner == who.Owner &&
		r.Engine == who.Engine && r.Instance == who.Instance && r.Role == who.Role && r.Rank == who.Rank
}
