package transfer

import "slices"

// A take of which some parts are in place, and none is under way, is remembered with its offer: the rest may come, over
// any node. Whoever has the offer's token could leave any number of them, and each is looked at for each take. So the
// oldest are forgotten, and would have to be taken anew. Engines that do not take over and over never see it.
const (
	maxUnfinished = 16  // per engine instance
	maxStray      = 256 // of those that keep no place from the engine that takes: they failed, or are its earlier instances'
)

func (c *claim) unfinished() bool { return c.live == 0 && !c.complete() }

// forgetUnfinished makes room for one more take of that engine.
func (o *offer) forgetUnfinished(name *claimName) {
	o.forgetOldest(maxUnfinished, func(c *claim) bool { return c.unfinished() && c.of(name) })
	o.forgetOldest(maxStray, func(c *claim) bool {
		return c.unfinished() && (!c.counts() || c.engine == name.engine && !c.of(name))
	})
}

func (o *offer) forgetOldest(most int, is func(*claim) bool) {
	if len(o.claims) < most {
		return
	}
	oldest, n := -1, 0
	for i, c := range o.claims {
		if is(c) {
			if n++; oldest < 0 {
				oldest = i
			}
		}
	}
	if n >= most {
		o.claims = slices.Delete(o.claims, oldest, oldest+1)
	}
}
