package session

import (
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer/roster"
)

// maxMoved is more than a node has engines. Only a client that moves itself from cgroup to cgroup causes so many.
const maxMoved = 4096

// owner returns the name by which an engine's owner is known. In a cgroup namespace, such as a container's, the kernel
// gives the cgroups of others relative to the root of that namespace (/../pod/engine), and the next daemon's container
// may have another root. The engine's first session that comes back with its secret shows that the old and the new name
// mean one owner. The old name stays in use: the file has all ranks under it. If another engine of the same place has
// come under the new name by then, it keeps that.
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
		clear(st.moved) // sessions that are known go on; a new rank gets the name by which it is seen
	}
	st.moved[seen] = was
	return was
}

// oneOwner reports whether two names may mean one owner, seen from different cgroups: the user is the same, and so is
// the path beyond what the two places share.
func oneOwner(a, b string) bool {
	userA, groupA, okA := strings.Cut(a, ownerGroup)
	userB, groupB, okB := strings.Cut(b, ownerGroup)
	tailA, tailB := below(groupA), below(groupB)
	apart := tailA != groupA || tailB != groupB
	return okA && okB && userA == userB && apart && tailA != "" && tailB != "" && (strings.HasSuffix(tailA, tailB) || strings.HasSuffix(tailB, tailA))
}

// below returns the part of a cgroup's path below a known place: what follows its leading "/..", or all of it if it has
// none.
func below(group string) string {
	for strings.HasPrefix(group+"/", "/../") {
		group = group[len("/.."):]
	}
	return group
}
