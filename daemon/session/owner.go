package session

import (
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// maxMoved is more than a node has engines: only one client that moves itself from cgroup to cgroup has so many.
const maxMoved = 4096

// owner is by which name an engine's owner is known. In a cgroup namespace, as a container has, the kernel says where others' cgroups are from the
// root of that namespace (/../pod/engine), which for the next daemon's container may be another one. The engine's first session that comes back with
// its secret tells that the two are one; the name stays the one of before, by which the file has all ranks. Another engine of the same place may have
// come by then, and is known by the new name: it keeps that.
func (st *state) owner(back roster.Return, seen roster.Engine) string {
	st.mu.Lock()
	defer st.mu.Unlock()
	was := st.roster.OwnerOf(back, seen.Name)
	if was == seen.Owner { // it came before that was known
		return was
	}
	if known, ok := st.moved[seen]; ok {
		return known
	}
	if was == "" || !oneOwner(was, seen.Owner) {
		return seen.Owner
	}
	if len(st.moved) >= maxMoved {
		clear(st.moved) // who is known goes on; a rank that comes new has the name by which it is seen
	}
	st.moved[seen] = was
	return was
}

// oneOwner says whether two names may be of one owner, seen from different cgroups: same user, and beyond what the two places share, same path.
func oneOwner(a, b string) bool {
	userA, groupA, okA := strings.Cut(a, ownerGroup)
	userB, groupB, okB := strings.Cut(b, ownerGroup)
	tailA, tailB := below(groupA), below(groupB)
	apart := tailA != groupA || tailB != groupB
	return okA && okB && userA == userB && apart && tailA != "" && tailB != "" && (strings.HasSuffix(tailA, tailB) || strings.HasSuffix(tailB, tailA))
}

// below is the part of a cgroup's path that lies below a place that is known: all of it where it does not lead up.
func below(group string) string {
	for strings.HasPrefix(group+"/", "/../") {
		group = group[len("/.."):]
	}
	return group
}
