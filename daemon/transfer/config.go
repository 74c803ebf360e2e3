package transfer

// Units of Time, for configurations.
const (
	Millisecond Time = 1e6
	Second      Time = 1e9
)

// Config is what New needs. A zero field gets the default named beside it; Node and Random are required.
type Config struct {
	Node   string        // this node's name: takes that name it are local
	Random func() uint64 // the only source of chance; seeded in the simulator

	WindowBytes  uint64 // most bytes posted and not ended, per peer and transport; 64 MiB
	WindowSlices int    // most slices, likewise; 128
	WindowsHere  int    // number of such windows for transfers within the node; 1

	DefaultTimeout Time // of takes and gets, and of the interest of watches; 30 s
	MaxTimeout     Time // of takes, watches and drops; 1 h
	DefaultLease   Time // of offers; 30 s
	MaxLease       Time // of offers, and of the linger of pipes and lookup buffers; 10 min
	OrphanLease    Time // how long sealed offers outlive an engine that died; 0: not at all
	OfferWait      Time // how long a take waits for its offer; 30 s
	FenceGrace     Time // how long a terminal report waits for its fence before it says More; 50 ms

	Retries      int  // how often a spoiled slice is sent again; 2
	Resend       Time // pause after which unanswered messages are repeated; 1 s
	Settle       Time // how long nothing may land after the producer sent all; 1 s, doubled up to eight times that
	Linger       Time // how long ends are repeated, and remembered for peers that did not hear of them; 10 s
	PipeLinger   Time // how long items outlive their sender; 10 s
	TombstoneFor Time // how long keys of ended offers are remembered; 60 s
	Redial       Time // pause between attempts to reach a peer, doubled up to eight times that, plus up to as much again at random; 200 ms

	AtOnce int // most block ids of a take within the node that the driver is asked to move at once (MoveNow); 0: none

	MaxOps        int // operations per session, not yet released; 4096
	MaxOffers     int // per session; 4096
	MaxParked     int // takes of one peer that are served here, and as many of its gets; 4096
	MaxHeld       int // size of what a peer asks for and grants, in block ids or tokens of 4 bytes; 64 Mi
	MaxEnds       int // receiving ends of a peer that are remembered here; 65536
	MaxTombstones int // remembered keys, and watches and drops that wait for their offers; 65536
	MaxPipes      int // ends of pipes and lookup buffers, per engine and owner; 256
	MaxItems      int // per session: in its pipe or lookup buffer; 262144

	MaxBlockIDs int // per session: in its operations that are not released, 4 bytes each; 64 Mi

	Debug bool // log single requests, at debug level

	Broken Broken
}

// Broken leaves out single guards. It is only for tests which check that the simulator notices.
type Broken struct {
	Fence       bool // memory is reported free without waiting for the fence
	Hold        bool // conflicting holds are granted
	Commit      bool // a take is done although slices are missing
	Groups      bool // conflicting holds are granted on groups after the first, and blocks of those that an offer lacks are not missing
	Incarnation bool // bytes of two offers under one key may mix
	Unfinished  bool // offers outlive an engine that had not written all their blocks
	Heir        bool // a dead scheduler's offers outlive it although its successor came before the death was known
	Gap         bool // a pipe goes on after an item that was refused
	Return      bool // an item of a pipe or lookup buffer that was found and not received does not go back
	Count       bool // each rank is told the bytes of all ranks
	Doubt       bool // an item that may have been received goes back
	Outage      bool // the word that an item was received does not count after a long outage
	Ranks       Kind // for operations of this kind of a scheduler, ranks are told that memory is free while it may still be touched
	Stranger    bool // takes, watches, drops, receiving ends and ranks that offer for themselves pass with any token, content digest and layout
	Unheard     bool // a pipe that ends with nothing in it before a receiver came is forgotten
	Lease       bool // offers outlive their lease
	Interest    bool // watches and drops do nothing, and are done
	Twice       bool // a part of a take counts as often as it is taken
	Apart       bool // parts that come from different nodes count as those of different engines
	Parts       bool // a part that fails undoes those that were taken before
	LateSlice   bool // a slice that is spoiled after it landed still counts as landed
	Absent      bool // a scheduler's operations go on without ranks that have left
	Outdated    bool // what a scheduler submitted to an earlier daemon is about whichever ranks are here
	Successor   bool // what waits for a rank is about the rank that comes in its place
	Sender      bool // what is said of a take counts, whichever node says it
	Asleep      bool // memory that is given up is reported free of operations while they go on
	Torn        bool // a take that was moved at once only in part is done
	Spoiled     bool // of a take that a late copy spoiled, only the blocks that the offer lacks are not to be used
	Uneven      bool // one list names blocks of ranks that cut the same tokens into blocks of different sizes
	Step        bool // ranks that offer for themselves extend by tokens that others have in earlier or later pieces
	Joined      bool // an offer that each rank makes for itself is complete without the absent ranks
}

// MostCompletions is how many completions an operation may have: its terminal one, QUARANTINED and RELEASED. Room for
// them is reserved in the ring before it begins.
const MostCompletions = 3

// Credits that an operation reserves.
const (
	creditsMemory = MostCompletions
	creditsKey    = 1
	maxOwed       = 4096 // answers that a session leaves uncollected before it is ended
)

func (c *Config) setDefaults() {
	def(&c.WindowBytes, 64<<20)
	def(&c.WindowSlices, 128)
	def(&c.WindowsHere, 1)
	def(&c.DefaultTimeout, 30*Second)
	def(&c.MaxTimeout, 3600*Second)
	def(&c.DefaultLease, 30*Second)
	def(&c.MaxLease, 600*Second)
	def(&c.OfferWait, 30*Second)
	def(&c.FenceGrace, 50*Millisecond)
	def(&c.Retries, 2)
	def(&c.Resend, Second)
	def(&c.Settle, Second)
	def(&c.Linger, 10*Second)
	def(&c.PipeLinger, 10*Second)
	def(&c.TombstoneFor, 60*Second)
	def(&c.Redial, 200*Millisecond)
	def(&c.MaxOps, 4096)
	def(&c.MaxOffers, 4096)
	def(&c.MaxParked, 4096)
	def(&c.MaxHeld, MaxHeldTokens)
	def(&c.MaxEnds, 1<<16)
	def(&c.MaxTombstones, 65536)
	def(&c.MaxPipes, 256)
	def(&c.MaxItems, 262144)
	def(&c.MaxBlockIDs, 64<<20)
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Reload takes over the limits and times of a configuration. What was fixed before, such as deadlines of running
// operations, stays; so do Node, Random and Broken.
func (m *Machine) Reload(c Config) {
	c.setDefaults()
	c.Node, c.Random, c.Broken = m.cfg.Node, m.cfg.Random, m.cfg.Broken
	m.cfg, m.mostItems = c, max(m.mostItems, c.MaxItems)
}
