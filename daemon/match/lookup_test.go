package match

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive is a lookup buffer as one would tell it: two lists, oldest first.
type naive struct {
	entries []*naiveEntry
	queries []*naiveQuery
}

type naiveEntry struct {
	id     int
	tokens []uint32
	taken  bool
	real   Entry[int]
}

type naiveQuery struct {
	id     int
	mode   Mode
	tokens []uint32
	real   Query[int]
}

func begins(a, b []uint32) bool { return len(a) >= len(b) && slices.Equal(a[:len(b)], b) }

func matches(mode Mode, query, entry []uint32) bool {
	switch mode {
	case Any:
		return true
	case Exact:
		return len(entry) > 0 && slices.Equal(query, entry)
	}
	return len(entry) > 0 && (begins(query, entry) || begins(entry, query))
}

func (n *naive) find(mode Mode, tokens []uint32) *naiveEntry {
	for _, e := range n.entries {
		if !e.taken && matches(mode, tokens, e.tokens) {
			return e
		}
	}
	return nil
}

func (n *naive) waiting(e *naiveEntry) *naiveQuery {
	for _, q := range n.queries {
		if matches(q.mode, q.tokens, e.tokens) {
			return q
		}
	}
	return nil
}

// TestLookup compares the index with the list under random operations: short sequences over few tokens, so that many begin with others.
func TestLookup(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var l Lookup[int, int]
		var n naive
		next := 0
		alphabet := rapid.Uint32Range(0, rapid.SampledFrom([]uint32{1, 3, 40}).Draw(r, "alphabet"))
		tokens := func(least int) []uint32 { return rapid.SliceOfN(alphabet, least, 12).Draw(r, "tokens") }
		mode := rapid.SampledFrom([]Mode{Any, Prefix, Exact})
		pick := func(r *rapid.T) *naiveEntry {
			if len(n.entries) == 0 {
				r.Skip("empty")
			}
			return rapid.SampledFrom(n.entries).Draw(r, "entry")
		}
		arrived := func(r *rapid.T, e *naiveEntry) {
			want := n.waiting(e)
			got, ok := l.Waiting(e.real)
			if ok != (want != nil) || ok && got.Value() != want.id {
				r.Fatalf("entry %v finds query %v, want %+v", e.tokens, got, want)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"insert": func(r *rapid.T) {
				e := &naiveEntry{id: next, tokens: tokens(0)}
				next++
				given := slices.Clone(e.tokens)
				e.real = l.Insert(e.id, given)
				for i := range given {
					given[i] = 99 // not kept
				}
				n.entries = append(n.entries, e)
				arrived(r, e)
			},
			"find": func(r *rapid.T) {
				how, what := mode.Draw(r, "mode"), tokens(1)
				want := n.find(how, what)
				got, ok := l.Find(how, what)
				if ok != (want != nil) || ok && (got.Value() != want.id || got.Tokens() != len(want.tokens)) {
					r.Fatalf("mode %d of %v finds %v, want %+v", how, what, got, want)
				}
				if ok {
					want.taken = true
					l.Take(got)
				}
			},
			"return": func(r *rapid.T) {
				if e := pick(r); e.taken {
					e.taken = false
					l.Return(e.real)
					arrived(r, e)
				}
			},
			"remove": func(r *rapid.T) {
				e := pick(r)
				l.Remove(e.real)
				n.entries = slices.DeleteFunc(n.entries, func(x *naiveEntry) bool { return x == e })
			},
			"wait": func(r *rapid.T) {
				q := &naiveQuery{id: next, mode: mode.Draw(r, "mode"), tokens: tokens(1)}
				next++
				q.real = l.Wait(q.id, q.mode, q.tokens)
				n.queries = append(n.queries, q)
			},
			"leave": func(r *rapid.T) {
				if len(n.queries) == 0 {
					r.Skip("nobody waits")
				}
				i := rapid.IntRange(0, len(n.queries)-1).Draw(r, "query")
				l.Leave(n.queries[i].real)
				n.queries = slices.Delete(n.queries, i, i+1)
			},
			"": func(r *rapid.T) {
				var wait, free []int
				for _, q := range n.queries {
					wait = append(wait, q.id)
				}
				if got := slices.Sorted(slices.Values(l.Waiters())); !slices.Equal(got, wait) || l.Queries() != len(wait) {
					r.Fatalf("%d queries %v wait, want %v", l.Queries(), got, wait)
				}
				for _, e := range n.entries {
					if !e.taken {
						free = append(free, e.id)
					}
				}
				if got := slices.Sorted(slices.Values(l.entries.root.all(nil))); !slices.Equal(got, free) {
					r.Fatalf("entries %v can be found, want %v", got, free)
				}
				tight(r, &l.entries.root, len(n.entries) == 0)
				tight(r, &l.queries.root, len(n.queries) == 0)
			},
		})
	})
}

// tight looks for nodes that nobody needs, for those whose heaps disagree with what is there, and for anything at all when empty.
func tight[T any](r *rapid.T, n *node[T], empty bool) (found bool) {
	if empty && (n.kids.len() > 0 || n.leaves > 0) {
		r.Fatalf("an empty trie has %d kids and %d leaves", n.kids.len(), n.leaves)
	}
	if n.parent != nil && n.leaves == 0 && n.kids.len() < 2 {
		r.Fatalf("a node of label %v has no leaf and %d kids", n.label, n.kids.len())
	}
	found = len(n.own) > 0
	live := 0
	all := slices.Clone(n.kids.few)
	for _, k := range n.kids.many {
		all = append(all, k)
	}
	for _, k := range all {
		if k.parent != n || len(k.label) == 0 {
			r.Fatalf("a kid of %v has label %v and another parent", n.label, k.label)
		}
		if tight(r, k, false) {
			live++
			found = true
			if age, _ := k.least(); k.pos == 0 || n.below[k.pos-1] != k || k.age != age {
				r.Fatalf("kid %v is at %d of its parent's heap, of age %d: it is %d", k.label, k.pos, k.age, age)
			}
		}
	}
	if live != len(n.below) {
		r.Fatalf("node %v has %d kids with something, %d in its heap", n.label, live, len(n.below))
	}
	return found
}

// TestMemory: what is removed leaves nothing behind, also where long sequences were cut by short ones.
func TestMemory(t *testing.T) {
	var l Lookup[int, int]
	long := make([]uint32, 1<<16)
	short := l.Insert(0, long[:1])
	for range 100 {
		e := l.Insert(1, long)
		l.Remove(e)
	}
	if n := l.entries.root.kids.only(); cap(n.whole) > 2 || n.kids.len() > 0 {
		t.Errorf("one entry of one token keeps a label of %d tokens and %d kids", cap(n.whole), n.kids.len())
	}
	l.Remove(short)
	if l.entries.root.kids.len() != 0 {
		t.Error("an empty buffer has nodes")
	}
}

// TestShortOnesBesideALongOne: short sequences come and go at their own cost, wherever they cut a long one.
func TestShortOnesBesideALongOne(t *testing.T) {
	const long, cuts = 1 << 18, 64
	tokens := make([]uint32, long)
	var l Lookup[int, int]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var short []Entry[int]
	for n := range cuts {
		short = append(short, l.Insert(n, tokens[:n+1]))
	}
	l.Insert(cuts, tokens)
	for range 10 {
		for _, e := range slices.Backward(short) { // each joins what is left of the long one's edge to its own
			l.Remove(e)
		}
		short = short[:0]
		for n := range cuts {
			short = append(short, l.Insert(n, tokens[:n+1]))
		}
	}
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(3*4*long); took > most {
		t.Errorf("%d bytes were allocated for a sequence of %d tokens and short ones, want %d at most", took, long, most)
	}
	if e, ok := l.Find(Exact, tokens); !ok || e.Value() != cuts {
		t.Error("the long one is not found")
	}
}

// fill inserts n entries that share prefixes, as conversations do.
func fill(n int) (l *Lookup[int, int], of func(i int) []uint32) {
	l = new(Lookup[int, int])
	of = func(i int) []uint32 {
		s := make([]uint32, 256)
		for k := range s {
			s[k] = uint32(k)
			if k >= 128 {
				s[k] = uint32(i >> (8 * (k & 3)) & 0xff)
			}
		}
		return s
	}
	for i := range n {
		l.Insert(i, of(i))
	}
	return l, of
}

// BenchmarkSelect finds, takes and returns one of n entries.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, of := fill(n)
			queries := make([][]uint32, 16)
			for i := range queries {
				queries[i] = of(i * 7919 % n)
			}
			b.ReportAllocs()
			for i := range b.N {
				e, ok := l.Find(Prefix, queries[i&15])
				if !ok {
					b.Fatal("not found")
				}
				l.Take(e)
				l.Return(e)
			}
		})
	}
}

// BenchmarkInsert adds and removes an entry beside n others.
func BenchmarkInsert(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, of := fill(n)
			s := of(1 << 30)
			b.ReportAllocs()
			for range b.N {
				l.Remove(l.Insert(0, s))
			}
		})
	}
}
