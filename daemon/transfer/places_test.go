package transfer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// admitsOneByOne says the same as admits as its rule is worded, for each claim by itself.
func (o *offer) admitsOneByOne(name claimName) bool {
	keeps := func(c *claim) bool {
		return c.counts() && (c.engine != name.engine || c.instance == name.instance || c.live > 0 || c.complete())
	}
	others := 0
	for i, c := range o.claims {
		switch {
		case !keeps(c):
		case c.of(&name):
			return true
		case !slices.ContainsFunc(o.claims[:i], func(x *claim) bool { return keeps(x) && x.of(&c.claimName) }):
			others++
		}
	}
	return others < o.consumers
}

// TestPlacesOfAnOffer: whatever takes there are, of however many engines and instances of them.
func TestPlacesOfAnOffer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	admitted := 0
	for range 20000 {
		o := &offer{consumers: 1 + r.IntN(4)}
		for range r.IntN(8) {
			c := &claim{claimName: anyClaim(r), parts: 1 + r.IntN(2), live: max(r.IntN(4)-2, 0), failed: r.IntN(2) == 0}
			c.done[0] = uint64(r.IntN(1 << c.parts))
			o.claims = append(o.claims, c)
		}
		for range 4 {
			name, places := anyClaim(r), o.places()
			want := o.admitsOneByOne(name)
			if got, too := o.admits(name), places.admit(o, name); got != want || too != want {
				t.Fatalf("%+v of %d consumers, claims %v: %v and %v, want %v", name, o.consumers, o.claims, got, too, want)
			}
			if want {
				admitted++
			}
		}
	}
	if admitted < 10000 || admitted > 70000 {
		t.Errorf("%d of 80000 were admitted: the test has become one-sided", admitted)
	}
}

func anyClaim(r *rand.Rand) claimName {
	return claimName{engine: fmt.Sprint("e", r.IntN(3)), instance: fmt.Sprint(r.IntN(2)), take: uint64(r.IntN(3))}
}
