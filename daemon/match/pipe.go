package match

// Pipe holds the items of a pipe in the order of their numbers, from 0. The zero value is an empty pipe.
type Pipe[T any] struct {
	first uint64    // number of slots[0]; all before it are gone
	slots []slot[T] // slots[head:] are in use
	head  int
	items int
}

type slot[T any] struct {
	value T
	state State
}

// State is what became of a number.
type State uint8

// States of a number.
const (
	Ahead State = iota // no item has it yet
	Ready              // its item waits
	Taken              // it is being handed over
	Gone               // it was removed
)

// Put appends an item and returns its number.
func (p *Pipe[T]) Put(v T) uint64 {
	if p.head > 0 && len(p.slots) == cap(p.slots) && p.head >= len(p.slots)/2 {
		n := copy(p.slots, p.slots[p.head:])
		clear(p.slots[n:])
		p.slots, p.head = p.slots[:n], 0
	}
	p.slots = append(p.slots, slot[T]{v, Ready})
	p.items++
	return p.Next() - 1
}

// Get returns what has that number: the zero value when its state is Ahead or Gone.
func (p *Pipe[T]) Get(number uint64) (v T, s State) {
	switch at := p.at(number); {
	case number < p.first:
		return v, Gone
	case at == nil:
		return v, Ahead
	default:
		return at.value, at.state
	}
}

// Take hands out the item of that number, which must be Ready.
func (p *Pipe[T]) Take(number uint64) { p.at(number).state = Taken }

// Return puts an item that was taken back.
func (p *Pipe[T]) Return(number uint64) { p.at(number).state = Ready }

// Remove ends an item, taken or not.
func (p *Pipe[T]) Remove(number uint64) {
	*p.at(number) = slot[T]{state: Gone}
	p.items--
	for p.head < len(p.slots) && p.slots[p.head].state == Gone {
		p.head++
		p.first++
	}
	if p.head == len(p.slots) {
		p.slots, p.head = p.slots[:0], 0
	}
}

// Compact numbers the items that are left one after the other, from First on, and says which number each has now.
func (p *Pipe[T]) Compact(renumber func(v T, number uint64)) {
	if p.items == len(p.slots)-p.head {
		return
	}
	kept := p.slots[:p.head]
	for _, s := range p.slots[p.head:] {
		if s.state != Gone {
			renumber(s.value, p.first+uint64(len(kept)-p.head))
			kept = append(kept, s)
		}
	}
	clear(p.slots[len(kept):])
	p.slots = kept
}

// First is the oldest number that is not gone, or the next one.
func (p *Pipe[T]) First() uint64 { return p.first }

// Passed counts the items that are gone while an older one is not.
func (p *Pipe[T]) Passed() uint64 { return uint64(len(p.slots) - p.head - p.items) }

// Next is the number that the next item will have.
func (p *Pipe[T]) Next() uint64 { return p.first + uint64(len(p.slots)-p.head) }

// Len is how many items there are, taken ones included.
func (p *Pipe[T]) Len() int { return p.items }

// at is nil for numbers that are gone or ahead.
func (p *Pipe[T]) at(number uint64) *slot[T] {
	if i := number - p.first; number >= p.first && i < uint64(len(p.slots)-p.head) {
		return &p.slots[p.head+int(i)]
	}
	return nil
}
