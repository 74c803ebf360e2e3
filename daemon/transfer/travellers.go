package transfer

// traveller is an operation that needs a peer.
type traveller interface {
	arrive(m *Machine, p *peer) // nil: this node
	stranded(m *Machine, cause Cause)
}

// travellers wait for a channel, in the order in which they came. They leave in any order. One that leaves early leaves
// a hole, so that nobody else has to be looked at.
type travellers struct {
	list []traveller // nil: a hole
	at   map[traveller]int
}

func (w *travellers) count() int { return len(w.at) }

// add lets t wait, once.
func (w *travellers) add(t traveller) {
	if _, waits := w.at[t]; waits {
		return
	}
	if w.at == nil {
		w.at = map[traveller]int{}
	}
	w.at[t] = len(w.list)
	w.list = append(w.list, t)
}

// remove takes t out, if it is there. The others move up when there are more holes than of them.
func (w *travellers) remove(t traveller) {
	i, waits := w.at[t]
	if !waits {
		return
	}
	delete(w.at, t)
	w.list[i] = nil
	if len(w.list) <= 2*len(w.at)+16 {
		return
	}
	rest := make([]traveller, 0, len(w.at))
	for _, t := range w.list {
		if t != nil {
			w.at[t] = len(rest)
			rest = append(rest, t)
		}
	}
	w.list = rest
}

// takeAll empties the list and returns who was in it. One of those may end before its turn comes; it is told all the same.
func (w *travellers) takeAll() []traveller {
	all := make([]traveller, 0, len(w.at))
	for _, t := range w.list {
		if t != nil {
			all = append(all, t)
		}
	}
	*w = travellers{}
	return all
}
