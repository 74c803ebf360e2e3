package match

// heap has the oldest element on top. Every element stores its own position.
type heap[E aged] []E

type aged interface {
	when() uint64
	place() *int // position + 1; 0: in no heap
}

func (l *leaf[T]) when() uint64 { return l.age }
func (l *leaf[T]) place() *int  { return &l.pos }

func (n *node[T]) when() uint64 { return n.age }
func (n *node[T]) place() *int  { return &n.pos }

func (h *heap[E]) push(e E) {
	*h = append(*h, e)
	*e.place() = len(*h)
	h.up(len(*h) - 1)
}

func (h *heap[E]) remove(e E) {
	i, last := *e.place()-1, len(*h)-1
	moved := (*h)[last]
	var none E
	(*h)[last] = none
	*h = (*h)[:last]
	*e.place() = 0
	if i < last {
		(*h)[i] = moved
		*moved.place() = i + 1
		h.fix(moved)
	}
	if cap(*h) > 64 && len(*h) < cap(*h)/4 {
		*h = append(make([]E, 0, cap(*h)/2), *h...)
	}
}

// fix moves an element whose age has changed to its place.
func (h *heap[E]) fix(e E) {
	h.up(*e.place() - 1)
	h.down(*e.place() - 1)
}

func (h *heap[E]) up(i int) {
	s := *h
	for i > 0 {
		p := (i - 1) / 2
		if s[p].when() <= s[i].when() {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h *heap[E]) down(i int) {
	s := *h
	for {
		c := 2*i + 1
		if c+1 < len(s) && s[c+1].when() < s[c].when() {
			c++
		}
		if c >= len(s) || s[i].when() <= s[c].when() {
			return
		}
		h.swap(i, c)
		i = c
	}
}

func (h *heap[E]) swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	*s[i].place(), *s[j].place() = i+1, j+1
}
