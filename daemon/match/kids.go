package match

// kids are a node's children, by the first token of their labels: a short list, or a map if there are many.
type kids[T any] struct {
	few  []*node[T]
	many map[uint32]*node[T]
}

const few = 8

func (k *kids[T]) len() int { return len(k.few) + len(k.many) }

func (k *kids[T]) get(token uint32) *node[T] {
	if k.many != nil {
		return k.many[token]
	}
	for _, n := range k.few {
		if n.label[0] == token {
			return n
		}
	}
	return nil
}

func (k *kids[T]) add(n *node[T]) {
	if k.many == nil && len(k.few) < few {
		k.few = append(k.few, n)
		return
	}
	if k.many == nil {
		k.many = make(map[uint32]*node[T], 4*few)
		for _, old := range k.few {
			k.many[old.label[0]] = old
		}
		k.few = nil
	}
	k.many[n.label[0]] = n
}

func (k *kids[T]) remove(n *node[T]) {
	if k.many != nil {
		if delete(k.many, n.label[0]); len(k.many) <= few/2 {
			for _, left := range k.many {
				k.few = append(k.few, left)
			}
			k.many = nil // a map never gives memory back
		}
		return
	}
	for i, old := range k.few {
		if old == n {
			last := len(k.few) - 1
			k.few[i], k.few[last] = k.few[last], nil
			k.few = k.few[:last]
			return
		}
	}
}

// replace puts one node in another's place. Their labels begin with the same token.
func (k *kids[T]) replace(old, by *node[T]) {
	if k.many != nil {
		k.many[by.label[0]] = by
		return
	}
	for i := range k.few {
		if k.few[i] == old {
			k.few[i] = by
		}
	}
}

// only returns the only child.
func (k *kids[T]) only() *node[T] {
	for _, n := range k.many {
		return n
	}
	return k.few[0]
}
