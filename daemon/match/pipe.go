package match

// Pipe holds the items of a pipe in the order of their numbers, which begin at 0. The zero value is an empty pipe.
type Pipe[T any] struct {
	first uint64    // number of slots[head]; all numbers before it are gone
	slots []slot[T] // slots[head:] are in use
	head  int
	items int
}

type slot[T any] struct {
	value T
	state State
}

// State is the state of a number.
type State uint8

// States of a number.
const (
	Ahead State = iota // no item has it yet
	Ready              // its item waits
	Taken              // its item is being handed over
	Gone               // its item was removed
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

// Get returns the item with that number, and its state. The item is the zero value if the state is Ahead or Gone.
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

// Take hands out the item with that number, which must be Ready.
func (p *Pipe[T]) Take(number uint64) { p.at(number).state = Taken }

// Return puts a taken item back.
func (p *Pipe[T]) Return(number uint64) { p.at(number).state = Ready }

// Remove removes an item, taken or not.
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

// Compact numbers the remaining items consecutively, from First on, and calls renumber with each item's new number.
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

// First is the oldest number that is not gone, or Next if there is none.
func (p *Pipe[T]) First() uint64 { return p.first }

// Passed counts the items that are gone although an older one is not.
func (p *Pipe[T]) Passed() uint64 { return uint64(len(p.slots) - p.head - p.items) }

// Next is the number that the next item will get.
func (p *Pipe[T]) Next() uint64 { return p.first + uint64(len(p.slots)-p.head) }

// Len is the number of items, including taken ones.
func (p *Pipe[T]) Len() int { return p.items }

// at returns the slot of a number, or nil if the number is before the first slot or ahead.
func (p *Pipe[T]) at(number uint64) *slot[T] {
	if i := number - p.first; number >= p.first && i < uint64(len(p.slots)-p.head) {
		return &p.slots[p.head+int(i)]
	}
	return nil
}
