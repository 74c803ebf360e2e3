package session

import (
	"sync"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// ringMemory accounts for the daemon's memory that the rings of sessions may take. Few of their pages exist from the
// start, but the client decides which others come: where its completions have results, and where the records lie that
// the daemon reads. So all pages count, from HELLO until they are unmapped.
type ringMemory struct {
	mu    sync.Mutex
	all   uint64
	taken memory.Shares[uint64]
}

// take accounts for n more bytes of an owner. One owner may have half of the limit, and one user three quarters, so that
// others always find room.
func (r *ringMemory) take(owner string, n, limit uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	const mend = "ask for smaller ones (cq_entries, sq_entries), close some sessions, or raise that"
	switch own, users := r.taken.Owner(owner), r.taken.User(owner); {
	case own+n > limit/2:
		return refuse(transfer.Quota, "rings of up to %d bytes, and the %d of this user and cgroup are more than %d, half of limits.ring_memory = %d: "+mend, n, own, limit/2, limit)
	case users+n > limit/4*3:
		return refuse(transfer.Quota, "rings of up to %d bytes, and the %d of this user in all its cgroups are more than %d, three quarters of limits.ring_memory = %d: "+mend,
			n, users, limit/4*3, limit)
	case r.all+n > limit:
		return refuse(transfer.Quota, "rings of up to %d bytes, and the %d of all sessions are more than limits.ring_memory = %d: "+mend, n, r.all, limit)
	}
	r.all += n
	r.taken.Add(owner, n)
	return nil
}

func (r *ringMemory) giveBack(owner string, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all -= n
	r.taken.Sub(owner, n)
}

// used returns the bytes of all sessions.
func (r *ringMemory) used() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}
