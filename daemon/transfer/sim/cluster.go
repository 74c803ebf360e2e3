package sim

import (
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

const (
	ms     = transfer.Millisecond
	second = transfer.Second

	briefly = 3 * second // most partitions last no longer
)

// Options define a run. What they leave open is drawn from the seed.
type Options struct {
	Seed   uint64
	Broken transfer.Broken // guards that the machines leave out
	Ends   bool            // with pipes and lookup buffers
	Late   bool            // the transport lands slices after it said that they are fenced
	Lapse  Lapse           // a mistake that daemons make about who comes to them
	Unrest bool            // daemons are restarted again and again; if not set, in some seeds only
	Tight  bool            // daemons keep little for their peers
	Mad    bool            // one of the nodes is mad
	Ragged bool            // blocks do not fit together
	Trace  func(line string)
}

// Cluster is the world of one run.
type Cluster struct {
	opts   Options
	rng    rng
	now    transfer.Time
	seq    uint64
	agenda agenda
	broken error

	nodes    []*Node
	byName   map[string]*Node
	net      network
	faults   faults
	cfg      transfer.Config // of every machine
	slice    uint64          // bytes of a slice
	inline   uint64          // bytes of a segment that may ride in a grant
	cut      transfer.Time   // the longest partition
	slides   int             // how many tokens the engines' second group keeps; 0: they have one group
	states   int             // how many blocks of state each request has; 0: none
	ops      []*Op
	byTag    map[uint64]*Op
	requests []*Request
	lastTag  uint64
	engines  []*Engine
	fixed    bool // a script: every delay is the same, nothing fails
	next     next // what a script makes fail next
	credits  int  // completions that a session has room for
	calm     bool // the end of the run: nothing goes wrong any more
	steps    int
	lost     transfer.Time // how long nodes stood still, all together
	movedNow int           // takes that were moved at once
	resumed  int           // sessions that came back to the next daemon
	napped   int           // regions that were given up for a while
	replaced int           // ranks whose process was replaced by another of their instance
	rebuffed int           // sessions that came back and were refused, as those of older instances are
	outlived int           // offers that outlived a session
	crowded  int           // times that a peer was told that there is no room
	readOut  int           // dead processes with submissions still in their rings
	slid     int           // takes of two groups that are done
	readied  int           // times that layers of a take of two groups were said to be in place
	reloads  int           // configurations that were read again
	gathered int           // takes of which all parts were done, by several daemons
	lacked   int           // takes that lacked blocks
	spoiled  int           // takes that lacked blocks and were spoiled while they waited for their fence
	uneven   int           // takes and offers of ranks that cut the same tokens into different blocks, with lists for all of them
	pipes    []*conduit
	items    map[uint64]*thing // by the number in their description
	received int
	words    int      // pipes that were closed with nothing in them before anybody came
	despite  int      // items received again after a partition in which their home had given up waiting
	reunited int      // times that a home met a node again after it had given up waiting for that node's word about items
	mad      *madness // nil: no node is
}

// faults are chances in percent.
type faults struct {
	loss, dup, slow          int // of messages
	lost, corrupt, torn      int // of slices
	lateSlice                int
	fenceSlow, fenceFails    int
	churn                    int // of offers: withdrawn, and another made under the same key
	replay                   int // of takes and seeks: delivered again much later
	lazy                     int // engines that collect completions late
	unread                   int // of submissions: this one and those after it stay unread for a while
	drain                    int // per chance of trouble: a daemon is told to shut down, and does so later
	reload                   int // per chance of trouble: a daemon's limits and leases change
	deaf                     int // per chance of trouble: messages in one direction are lost for a while
	partition, crash, client int // per chance of trouble
	loyal                    int // engines that outlive a crash of their daemon
	rank                     int // per chance of trouble, and per restart: one process of an engine dies, is replaced, or stands still
	trouble                  transfer.Time
	still                    int // per chance of trouble: a node stands still for a while
	device                   int // of plans, slices and inline payloads: an error that trying again does not mend
}

// next is what a script makes fail next.
type next struct {
	lose, corrupt int           // slices
	fence         transfer.Time // how long the next fence takes
	fenceFails    bool          // it fails first
}

// fenced returns what was planned for the next fence, and clears it.
func (x *next) fenced() (d transfer.Time, fails bool) {
	d, fails = x.fence, x.fenceFails
	x.fence, x.fenceFails = 0, false
	return d, fails
}

// use takes one from n and returns true, or false if n is 0.
func (*next) use(n *int) bool {
	if *n > 0 {
		*n--
		return true
	}
	return false
}

// New makes the nodes and engines of a seed.
func New(opts Options) *Cluster {
	c := newCluster(opts)
	r := &c.rng
	c.cfg.OfferWait = r.span(200*ms, 5*second)
	c.cfg.DefaultLease = r.span(500*ms, 5*second)
	c.cfg.FenceGrace = r.span(1*ms, 40*ms)
	c.cfg.Resend = r.span(50*ms, 400*ms)
	c.cfg.Settle = r.span(20*ms, 100*ms)
	if r.hit(70) {
		c.cfg.OrphanLease = r.span(50*ms, 3*second)
	}
	c.cfg.Linger, c.cut = r.span(100*ms, 3*second), briefly
	if opts.Ends { // a home waits for word about an item in doubt for longer than most partitions last
		c.cfg.Linger = r.span(4*second, 8*second)
		if r.hit(15) { // or less, but still longer than a late message takes
			c.cfg.Linger, c.cut = r.span(2100*ms, 2600*ms), 12*second
		}
		c.cfg.PipeLinger = r.span(100*ms, 4*second)
		if r.hit(20) {
			c.cfg.MaxItems = r.in(2, 12)
		}
	}
	c.cfg.WindowSlices = r.in(1, 8)
	if r.hit(50) {
		c.cfg.AtOnce = r.in(1, 24)
	}
	c.slice = uint64(8 * r.in(2, 16))
	if r.hit(50) {
		c.inline = uint64(r.in(16, 256))
	}
	if r.hit(30) {
		c.slides = r.in(1, 12)
	}
	if opts.Ragged && r.hit(50) {
		c.states = r.in(1, 3)
	}
	if opts.Tight {
		c.tighten()
	}
	if opts.Mad { // otherwise the end of the run would have to wait for what it asked for
		c.cfg.MaxTimeout, c.cfg.MaxLease = maxTime, maxTime
	}
	c.faults = someFaults(r)
	switch {
	case opts.Ends:
		c.faults.drain *= 3
		c.faults.rank = 0    // ends have no ranks
		if c.cut > briefly { // and ends live through long partitions
			c.faults.partition = r.in(20, 40)
			c.faults.crash, c.faults.client, c.faults.drain = 0, 0, 0
		} else if opts.Unrest {
			c.faults.unsettle(r)
		}
	case r.hit(20) || opts.Unrest:
		c.faults.unsettle(r)
	}
	if opts.Ragged {
		c.faults.fray(r)
	}
	for i := range r.in(3, 8) {
		c.AddNode(fmt.Sprintf("n%d", i))
	}
	if opts.Mad {
		c.goMad()
	}
	for i := range r.in(len(c.nodes), 2*len(c.nodes)) {
		c.AddEngine(c.nodes[i%len(c.nodes)], c.someShape(i))
	}
	if !opts.Ends && r.hit(70) {
		c.addSpread()
	}
	if c.cfg.AtOnce > 0 { // neighbours of one rank: takes between them can be moved at once
		for range 2 {
			c.AddEngine(c.nodes[0], shape{blockSize: pick(r, []int{2, 4}), hnd: r.hit(50), model: "m"})
		}
	}
	if opts.Ends {
		c.addEnds()
	}
	return c
}

func newCluster(opts Options) *Cluster {
	c := &Cluster{opts: opts, rng: rng(opts.Seed), now: second, byName: map[string]*Node{}, byTag: map[uint64]*Op{}, items: map[uint64]*thing{}, slice: 64, credits: 64}
	c.cfg.Broken = opts.Broken
	c.net = newNetwork(c)
	return c
}

// someFaults draws what this seed suffers from: some seeds from one thing, some from all, some from nothing.
func someFaults(r *rng) faults {
	var f faults
	on := func(most int) int {
		if r.hit(45) {
			return 0
		}
		return r.in(1, most)
	}
	f.loss, f.dup, f.slow = on(20), on(20), on(20)
	f.lost, f.corrupt, f.torn, f.lateSlice = on(10), on(15), on(10), on(15)
	f.fenceSlow, f.fenceFails = on(40), on(10)
	f.churn, f.replay, f.deaf = on(80), on(60), on(60)
	f.lazy, f.drain = on(60), on(10)
	f.partition, f.crash, f.client, f.rank = on(40), on(30), on(40), on(50)
	f.trouble, f.loyal = r.span(300*ms, 3*second), 60
	f.unread, f.reload = on(15), on(70)
	return f
}

// Run plays the seed, ends all trouble, waits until everything must be over, and returns the first broken promise.
func (c *Cluster) Run() error {
	c.workload()
	c.run(c.now + c.rng.span(5*second, 15*second) + 2*(c.cut-briefly)) // long partitions end, too
	c.calmDown()
	for i := 0; i < 240 && c.broken == nil && !c.quiet(); i++ {
		c.run(c.now + second)
	}
	if c.broken == nil {
		c.checkEnd()
	}
	return c.broken
}

// fail notes the first broken promise; the run stops.
func (c *Cluster) fail(format string, args ...any) {
	if c.broken == nil {
		c.broken = fmt.Errorf(format, args...)
		c.tracef("BROKEN %v", c.broken)
	}
}

func (c *Cluster) tracef(format string, args ...any) {
	if c.opts.Trace != nil {
		c.opts.Trace(fmt.Sprintf("%9.3fms ", float64(c.now)/1e6) + fmt.Sprintf(format, args...))
	}
}

// Steps is how many events the machines of the run were given.
func (c *Cluster) Steps() int { return c.steps }
