package session

import (
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
	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

const maxStateBytes = 128 << 20 // more than clients can make it grow to, within the default limits of sessions

// loadState reads what the previous daemon left. A file that makes no sense is set aside and named in the error; the
// state is usable all the same. The state is nil if the daemon lacks the resources to read the file.
func loadState(path string) (*state, error) {
	st := newState(path)
	if path == "" {
		return st, nil
	}
	f, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return st, nil
	case scarce(err): // the file is as good as before: a daemon with more resources can read it
		return nil, fmt.Errorf("state %s: %w", path, err)
	case err != nil:
		aside := path + ".broken"
		return st, errors.Join(fmt.Errorf("state %s: %w: it is set aside as %s, and sessions of before are taken for new ones", path, err, aside), os.Rename(path, aside))
	}
	st.roster.Recall(f)
	return st, nil
}

func readState(path string) (*roster.File, error) {
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

// parseState leaves out sessions that do not come back to this daemon: ends of pipes, and roles of a later version.
func parseState(b []byte) (*roster.File, error) {
	f := &roster.File{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, err
	}
	if f.Version < 1 {
		return nil, fmt.Errorf("version is %d: must be at least 1", f.Version)
	}
	f.Sessions = slices.DeleteFunc(f.Sessions, func(r roster.Session) bool { return r.Role >= transfer.Endpoint })
	for i := range f.Sessions {
		if err := plausible(&f.Sessions[i]); err != nil {
			return nil, fmt.Errorf("session %#x: %w", uint64(f.Sessions[i].ID), err)
		}
	}
	for i := range f.Instances {
		if ranks := f.Instances[i].Ranks; len(ranks) > maxWorld || len(ranks) > 0 && slices.Max(ranks) >= maxWorld {
			return nil, fmt.Errorf("instance %q has %d ranks, the highest is %d: must be below %d", f.Instances[i].Instance, len(ranks), slices.Max(ranks), maxWorld)
		}
	}
	return f, nil
}

// plausible returns why no HELLO can have made the session, or nil. Nobody could come back as an implausible one.
func plausible(r *roster.Session) error {
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
	case r.ID == 0 || r.Role == 0:
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

// save brings the file up to date. Of many callers at once, one writes for all. The file is not synced: it has to
// outlive the daemon, not the machine, with which all sessions end.
func (st *state) save() (err error) {
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
	defer func() {
		st.mu.Lock()
		st.lacks = err
		st.mu.Unlock()
	}()
	b, has, err := st.encode()
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	err = st.replace(b)
	// A file of the previous daemon is worse than none: after another restart it would keep clients that are back under
	// new names from their own places. Removing it also makes room. A file of this daemon stays: it only lacks the
	// latest changes.
	if err != nil && st.written == 0 && os.Remove(st.path) == nil {
		err = st.replace(b)
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	st.written = has
	return nil
}

func (st *state) replace(b []byte) error {
	next := st.path + ".next"
	err := os.WriteFile(next, b, 0o600)
	if err == nil {
		err = os.Rename(next, st.path)
	}
	if err != nil {
		_ = os.Remove(next) // a part of it
	}
	return err
}

// encode returns the file's contents and how many changes are in them.
func (st *state) encode() (b []byte, changes uint64, err error) {
	st.mu.Lock()
	f, changes := st.roster.File(), st.changes
	st.mu.Unlock()
	b, err = json.Marshal(f)
	return b, changes, err
}
