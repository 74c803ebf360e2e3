package match

import "slices"

// trie finds the oldest of the things stored under sequences of tokens. It is a compressed prefix tree: an edge has a
// label of one or more tokens. Every node knows the oldest thing at it and, by a heap of its children, the oldest one
// below it. So a search takes as long as the walk along its sequence, whatever else is in the trie. What is inserted
// and removed costs its own tokens, however long the sequences are that it shares an edge with. Memory is proportional
// to the tokens of what is in it.
type trie[T any] struct {
	root node[T]
}

// leaf is a thing's place in a trie.
type leaf[T any] struct {
	value  T
	age    uint64 // when it came; smaller is older
	tokens int    // length of its sequence
	node   *node[T]
	pos    int // position + 1 in node.own; 0: it is taken
}

type node[T any] struct {
	parent *node[T]
	label  []uint32 // of the edge from parent: the end of whole
	whole  []uint32 // the end of the sequence that leads here, in memory of the node's own
	own    heap[*leaf[T]]
	leaves int // leaves in own plus taken ones
	kids   kids[T]
	below  heap[*node[T]] // children with something not taken, ordered by their oldest
	pos    int            // position + 1 in parent.below; 0: everything here is taken
	age    uint64         // of the oldest thing at the node or below; valid while pos > 0
}

// insert adds a thing under a sequence, which it does not keep.
func (t *trie[T]) insert(v T, age uint64, tokens []uint32) *leaf[T] {
	n, rest := &t.root, tokens
	for len(rest) > 0 {
		kid := n.kids.get(rest[0])
		if kid == nil {
			kid = newNode(n, rest)
			n.kids.add(kid)
			n, rest = kid, nil
			break
		}
		if k := common(kid.label, rest); k < len(kid.label) {
			kid = kid.split(k)
		}
		n, rest = kid, rest[len(kid.label):]
	}
	l := &leaf[T]{value: v, age: age, tokens: len(tokens), node: n}
	n.leaves++
	l.put()
	return l
}

func newNode[T any](parent *node[T], label []uint32) *node[T] {
	whole := slices.Clone(label)
	return &node[T]{parent: parent, label: whole, whole: whole}
}

// split inserts a node into the edge to n, after k tokens of its label, and returns the new node. The label may be much
// longer than what was inserted, so its rest is not copied.
func (n *node[T]) split(k int) *node[T] {
	up := newNode(n.parent, n.label[:k])
	up.parent.kids.replace(n, up)
	pos := n.pos
	n.parent, n.label, n.pos = up, n.label[k:], 0
	up.kids.add(n)
	if up.pos, up.age = pos, n.age; pos > 0 {
		up.parent.below[pos-1] = up
		up.below.push(n)
	}
	return up
}

// put makes a leaf visible to searches.
func (l *leaf[T]) put() {
	l.node.own.push(l)
	l.node.changed()
}

// take hides a leaf; put makes it visible again.
func (l *leaf[T]) take() {
	l.node.own.remove(l)
	l.node.changed()
}

// remove deletes a leaf, and the nodes that existed for it alone.
func (l *leaf[T]) remove() {
	if l.pos > 0 {
		l.take()
	}
	n := l.node
	l.node = nil
	n.leaves--
	for n.parent != nil && n.leaves == 0 && n.kids.len() == 0 {
		up := n.parent
		up.kids.remove(n)
		n.parent, n = nil, up
	}
	if n.parent != nil && n.leaves == 0 && n.kids.len() == 1 {
		n.merge()
	}
}

// merge removes a node from the middle of an edge. Whatever edges end at the child later, its sequence is copied at most
// once for that.
func (n *node[T]) merge() {
	kid, up := n.kids.only(), n.parent
	length := len(n.label) + len(kid.label)
	if length > len(kid.whole) {
		kid.whole = kid.path(nil, kid.depth())
	}
	kid.label = kid.whole[len(kid.whole)-length:]
	kid.parent = up
	up.kids.replace(n, kid)
	if kid.pos = n.pos; n.pos > 0 {
		up.below[n.pos-1] = kid
	}
	n.parent, n.pos = nil, 0
}

// changed updates the nodes above, because the oldest thing of this node may have changed.
func (n *node[T]) changed() {
	for ; n.parent != nil; n = n.parent {
		age, found := n.least()
		switch {
		case !found && n.pos == 0 || found && n.pos > 0 && n.age == age:
			return
		case !found:
			n.parent.below.remove(n)
		case n.pos == 0:
			n.age = age
			n.parent.below.push(n)
		default:
			n.age = age
			n.parent.below.fix(n)
		}
	}
}

// least is the age of the oldest thing at the node or below it.
func (n *node[T]) least() (age uint64, found bool) {
	if len(n.own) > 0 {
		age, found = n.own[0].age, true
	}
	if len(n.below) > 0 && (!found || n.below[0].age < age) {
		age, found = n.below[0].age, true
	}
	return age, found
}

// oldest is the oldest thing at the node or below it.
func (n *node[T]) oldest() *leaf[T] {
	for {
		top := n.top()
		if len(n.below) == 0 || top != nil && top.age < n.below[0].age {
			return top
		}
		n = n.below[0]
	}
}

func older[T any](a, b *leaf[T]) *leaf[T] {
	if a == nil || b != nil && b.age < a.age {
		return b
	}
	return a
}

// along finds the oldest thing whose sequence is a prefix of tokens or, if below is set, has tokens as its prefix.
// Things under no tokens count only if root is set.
func (t *trie[T]) along(tokens []uint32, root, below bool) *leaf[T] {
	n, best := &t.root, (*leaf[T])(nil)
	for rest := tokens; ; {
		if len(rest) == 0 {
			if below {
				return older(best, n.oldest())
			}
			if n.parent != nil || root {
				best = older(best, n.top())
			}
			return best
		}
		if n.parent != nil || root {
			best = older(best, n.top())
		}
		kid := n.kids.get(rest[0])
		if kid == nil {
			return best
		}
		switch k := common(kid.label, rest); {
		case k == len(kid.label):
			n, rest = kid, rest[k:]
		case k == len(rest) && below:
			return older(best, kid.oldest())
		default:
			return best
		}
	}
}

// at finds the oldest thing under exactly that sequence.
func (t *trie[T]) at(tokens []uint32) *leaf[T] {
	n := &t.root
	for rest := tokens; len(rest) > 0; rest = rest[len(n.label):] {
		n = n.kids.get(rest[0])
		if n == nil || common(n.label, rest) < len(n.label) {
			return nil
		}
	}
	return n.top()
}

// top is the oldest thing at the node itself.
func (n *node[T]) top() *leaf[T] {
	if len(n.own) == 0 {
		return nil
	}
	return n.own[0]
}

// path writes the sequence of depth tokens that leads to the node into buf.
func (n *node[T]) path(buf []uint32, depth int) []uint32 {
	buf = slices.Grow(buf[:0], depth)[:depth]
	for ; n.parent != nil; n = n.parent {
		depth -= len(n.label)
		copy(buf[depth:], n.label)
	}
	return buf
}

// depth is the length of the sequence that leads to the node.
func (n *node[T]) depth() (tokens int) {
	for ; n.parent != nil; n = n.parent {
		tokens += len(n.label)
	}
	return tokens
}

// common is the length of the common prefix.
func common(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// all appends everything at the node and below it that is not taken.
func (n *node[T]) all(out []T) []T {
	for _, l := range n.own {
		out = append(out, l.value)
	}
	for _, k := range n.below {
		out = k.all(out)
	}
	return out
}
