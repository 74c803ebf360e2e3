package match

import (
	"testing"

	"pgregory.net/rapid"
)

// number is what a list that forgets nothing knows of a number.
type number struct {
	item  int
	state State
}

// TestPipe compares with a list of all numbers there ever were.
func TestPipe(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var p Pipe[int]
		var all []number
		items := 0
		in := func(r *rapid.T, s ...State) uint64 {
			var which []uint64
			for i, is := range all {
				for _, want := range s {
					if is.state == want {
						which = append(which, uint64(i))
					}
				}
			}
			if len(which) == 0 {
				r.Skip("none")
			}
			return rapid.SampledFrom(which).Draw(r, "number")
		}
		first := func() int {
			for i := range all {
				if all[i].state != Gone {
					return i
				}
			}
			return len(all)
		}
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				items++
				if n := p.Put(items); n != uint64(len(all)) {
					r.Fatalf("item %d has number %d, want %d", items, n, len(all))
				}
				all = append(all, number{items, Ready})
			},
			"take":   func(r *rapid.T) { n := in(r, Ready); p.Take(n); all[n].state = Taken },
			"return": func(r *rapid.T) { n := in(r, Taken); p.Return(n); all[n].state = Ready },
			"remove": func(r *rapid.T) { n := in(r, Taken, Ready); p.Remove(n); all[n].state = Gone },
			"compact": func(r *rapid.T) {
				kept := all[:first():first()]
				for _, n := range all[first():] {
					if n.state != Gone {
						kept = append(kept, n)
					}
				}
				changed := len(kept) < len(all)
				said := first()
				all = kept
				p.Compact(func(item int, n uint64) {
					if n != uint64(said) || all[n].item != item {
						r.Fatalf("item %d is number %d, want item %d as %d", item, n, all[n].item, said)
					}
					said++
				})
				if changed && said != len(all) {
					r.Fatalf("%d of %d numbers were told", said, len(all))
				}
			},
			"": func(r *rapid.T) {
				live := 0
				for i, want := range all {
					v, s := p.Get(uint64(i))
					if s != want.state || s != Gone && v != want.item {
						r.Fatalf("number %d is %d in state %d, want %+v", i, v, s, want)
					}
					if s != Gone {
						live++
					}
				}
				if _, s := p.Get(uint64(len(all))); s != Ahead || p.Next() != uint64(len(all)) || p.Len() != live || p.First() != uint64(first()) {
					r.Fatalf("state %d of the next, next %d, %d items, first %d; want ahead, %d, %d, %d", s, p.Next(), p.Len(), p.First(), len(all), live, first())
				}
			},
		})
	})
}

// BenchmarkPipe passes one item beside a thousand others.
func BenchmarkPipe(b *testing.B) {
	var p Pipe[*int]
	for range 1000 {
		p.Put(nil)
	}
	b.ReportAllocs()
	for i := range b.N {
		p.Put(nil)
		p.Take(uint64(i))
		p.Remove(uint64(i))
	}
}
