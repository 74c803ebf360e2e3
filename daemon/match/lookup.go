package match

// Mode is how a query's tokens select an entry.
type Mode uint8

// Modes of queries.
const (
	Any    Mode = iota + 1 // every entry, even one without tokens
	Prefix                 // the entry's tokens begin with the query's, or the query's with the entry's
	Exact                  // the two are equal
)

// Lookup holds the entries of a lookup buffer that are found by their tokens, and the queries that wait for one. The
// zero value is empty. E and Q are the caller's values for entries and queries.
type Lookup[E, Q any] struct {
	entries trie[E]
	queries trie[Q] // Prefix and Any; Any is stored under no tokens, so every entry finds it
	exact   trie[Q]
	age     uint64
	scratch []uint32
	nquery  int
}

// Entry is an entry's place among the others.
type Entry[E any] struct{ leaf *leaf[E] }

// Query is a waiting query's place among the others.
type Query[Q any] struct{ leaf *leaf[Q] }

// Value is what the entry was inserted with, Tokens how many tokens it has.
func (e Entry[E]) Value() E    { return e.leaf.value }
func (e Entry[E]) Tokens() int { return e.leaf.tokens }

// Value is what the query was made with, Tokens how many tokens it has.
func (q Query[Q]) Value() Q    { return q.leaf.value }
func (q Query[Q]) Tokens() int { return q.leaf.tokens }

// Insert adds an entry, younger than all others. The tokens are not kept. An entry without tokens is found by Any
// alone.
func (l *Lookup[E, Q]) Insert(v E, tokens []uint32) Entry[E] {
	l.age++
	return Entry[E]{l.entries.insert(v, l.age, tokens)}
}

// Find returns the oldest entry that matches and is not taken.
func (l *Lookup[E, Q]) Find(mode Mode, tokens []uint32) (e Entry[E], ok bool) {
	switch mode {
	case Any:
		e.leaf = l.entries.root.oldest()
	case Prefix:
		e.leaf = l.entries.along(tokens, false, true)
	case Exact:
		e.leaf = l.entries.at(tokens)
	}
	return e, e.leaf != nil
}

// Take hides an entry from queries; Return shows it again, as old as before. Remove deletes it, taken or not.
func (l *Lookup[E, Q]) Take(e Entry[E])   { e.leaf.take() }
func (l *Lookup[E, Q]) Return(e Entry[E]) { e.leaf.put() }
func (l *Lookup[E, Q]) Remove(e Entry[E]) { e.leaf.remove() }

// Wait adds a query that found nothing, younger than all others. Prefix and Exact need tokens, which are not kept.
func (l *Lookup[E, Q]) Wait(v Q, mode Mode, tokens []uint32) Query[Q] {
	l.age++
	l.nquery++
	switch mode {
	case Exact:
		return Query[Q]{l.exact.insert(v, l.age, tokens)}
	case Any:
		tokens = nil
	}
	return Query[Q]{l.queries.insert(v, l.age, tokens)}
}

// Waiting returns the oldest waiting query that the entry matches. The entry was just inserted or returned.
func (l *Lookup[E, Q]) Waiting(e Entry[E]) (q Query[Q], ok bool) {
	if l.nquery == 0 {
		return q, false
	}
	l.scratch = e.leaf.node.path(l.scratch, e.leaf.tokens)
	q.leaf = l.queries.along(l.scratch, true, len(l.scratch) > 0)
	if len(l.scratch) > 0 {
		q.leaf = older(q.leaf, l.exact.at(l.scratch))
	}
	if cap(l.scratch) > 1<<16 {
		l.scratch = nil // long ones are rare
	}
	return q, q.leaf != nil
}

// Leave ends a query's wait.
func (l *Lookup[E, Q]) Leave(q Query[Q]) {
	l.nquery--
	q.leaf.remove()
}

// Queries counts the waiting queries.
func (l *Lookup[E, Q]) Queries() int { return l.nquery }

// Waiters lists the waiting queries, in no particular order.
func (l *Lookup[E, Q]) Waiters() []Q {
	if l.nquery == 0 {
		return nil
	}
	return l.exact.root.all(l.queries.root.all(make([]Q, 0, l.nquery)))
}
