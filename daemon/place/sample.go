package place

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// Share is how many pages of a sample lie on a NUMA node.
type Share struct{ Node, Pages int }

// Sample looks at up to 16 pages of b and returns how many of them lie on each node, ordered by node. b need not be
// mapped any more. Pages that this process has not touched yet are left out.
func Sample(b []byte, where Where) ([]Share, error) {
	var page [sys.MaxPageNodes][]byte
	var node [sys.MaxPageNodes]int
	if len(b) == 0 {
		return nil, nil
	}
	for k := range page {
		page[k] = b[k*(len(b)-1)/(len(page)-1):]
	}
	if err := where(page[:], node[:]); err != nil {
		return nil, err
	}
	var out []Share
	for _, id := range node {
		i := slices.IndexFunc(out, func(s Share) bool { return s.Node == id })
		switch {
		case id < 0:
		case i >= 0:
			out[i].Pages++
		default:
			out = append(out, Share{id, 1})
		}
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Compare(a.Node, b.Node) })
	return out, nil
}
