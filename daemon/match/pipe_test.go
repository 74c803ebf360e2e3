package match

import (
	"testing"

	"pgregory.net/rapid"
)

// TestPipe compares with a list of all numbers there ever were.
func TestPipe(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var p Pipe[int]
		var all []State
		live := func() (n int) {
			for _, s := range all {
				if s != Gone {
					n++
				}
			}
			return n
		}
		in := func(r *rapid.T, s ...State) uint64 {
			var which []uint64
			for i, is := range all {
				for _, want := range s {
					if is == want {
						which = append(which, uint64(i))
					}
				}
			}
			if len(which) == 0 {
				r.Skip("none")
			}
			return rapid.SampledFrom(which).Draw(r, "number")
		}
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				if n := p.Put(len(all)); n != uint64(len(all)) {
					r.Fatalf("item %d has number %d", len(all), n)
				}
				all = append(all, Ready)
			},
			"take":   func(r *rapid.T) { n := in(r, Ready); p.Take(n); all[n] = Taken },
			"return": func(r *rapid.T) { n := in(r, Taken); p.Return(n); all[n] = Ready },
			"remove": func(r *rapid.T) { n := in(r, Taken, Ready); p.Remove(n); all[n] = Gone },
			"": func(r *rapid.T) {
				first := len(all)
				for i, want := range all {
					v, s := p.Get(uint64(i))
					if s != want || s != Gone && v != i {
						r.Fatalf("number %d is %d in state %d, want %d", i, v, s, want)
					}
					if want != Gone {
						first = min(first, i)
					}
				}
				if _, s := p.Get(uint64(len(all))); s != Ahead || p.Next() != uint64(len(all)) || p.Len() != live() || p.First() != uint64(first) {
					r.Fatalf("state %d of the next, next %d, %d items, first %d; want ahead, %d, %d, %d", s, p.Next(), p.Len(), p.First(), len(all), live(), first)
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
