package transfer

// Seconds and the like, for configurations.
const (
	Millisecond Time = 1e6
	Second      Time = 1e9
)

// Config is what New needs. Zero fields get the defaults named there; Node and Random are required.
type Config struct {
	Node        string        // this node's name: takes that name it are local
	Incarnation uint64        // of the daemon, part of what transfers and offers are named by
	Random      func() uint64 // the only source of chance; seeded in the simulator

	WindowBytes  uint64 // posted and not ended, per peer and transport; 64 MiB
	WindowSlices int    // likewise; 128
	WindowsHere  int    // how many such windows there are within the node; 1

	DefaultTimeout Time // of takes, watches and drops; 30 s
	MaxTimeout     Time // 1 h
	DefaultLease   Time // of offers; 30 s
	MaxLease       Time // 10 min
	OrphanLease    Time // how long sealed offers outlive an engine that died; 0: not at all
	OfferWait      Time // how long a take waits for its offer; 30 s
	FenceGrace     Time // how long a terminal report waits for its fence before it says More; 50 ms

	Retries      int  // how often a slice that came spoiled is sent again; 2
	Resend       Time // unanswered messages are repeated after this; 1 s
	Settle       Time // how long slices may be on their way, none landing, after the producer sent all; 1 s, doubled each time
	Linger       Time // how long ends are repeated and remembered for peers that did not hear of them; 10 s
	PipeLinger   Time // how long items outlive their sender; 10 s
	TombstoneFor Time // how long keys of ended offers are remembered; 60 s
	Redial       Time // between attempts to reach a peer, doubled up to eight times that; 200 ms

	AtOnce int // blocks of a take within the node up to which the driver is asked to move it at once (MoveNow); 0: none

	MaxOps        int // per session, not yet released; 4096
	MaxOffers     int // per session; 4096
	MaxParked     int // takes that wait for offers, per peer; 4096
	MaxHeld       int // block ids and tokens of what a peer asks for and grants, 4 bytes each, and the size of the rest of that; 64 Mi
	MaxEnds       int // receiving ends of a peer that are remembered here; 65536
	MaxTombstones int // remembered keys; 65536
	MaxPipes      int // ends of pipes and lookup buffers, per engine and owner; 256
	MaxItems      int // per session: in its pipe or lookup buffer; 262144

	MaxBlockIDs int // per session: in its operations that are not released, 4 bytes each; 64 Mi

	Debug bool // log single requests, at debug level

	Broken Broken
}

// Broken leaves out single guards. Only for tests that have to see the simulator notice it.
type Broken struct {
	Fence       bool // memory is reported free without waiting for the fence
	Hold        bool // conflicting holds are granted
	Commit      bool // a take is done although slices are missing
	Groups      bool // conflicting holds are granted on blocks of other groups than the first, and what an offer lacks of those is not missing
	Incarnation bool // bytes of two offers under one key may mix
	Unfinished  bool // offers outlive an engine that had not written all their blocks
	Heir        bool // what a dead scheduler had offered outlives it, although its successor had come before that was known
	Gap         bool // a pipe goes on behind an item that was refused
	Return      bool // an item of a pipe or lookup buffer that was found and not received does not go back
	Doubt       bool // one that may have been received goes back
	Outage      bool // the word that it was does not count after a long outage
	Ranks       Kind // of such operations of a scheduler, the ranks are told that memory is free while it may still be touched
	Stranger    bool // takes, watches and drops with any token, content digest and layout are right
	Lease       bool // offers outlive their lease
	Interest    bool // watches and drops do nothing, and are done
	Twice       bool // a part of a take counts as often as it is taken
	Apart       bool // parts that come from different nodes are of different engines
	Parts       bool // a part that fails takes those with it that were taken before
	LateSlice   bool // a slice that is spoiled after it had landed stays landed
	Absent      bool // a scheduler's operations go on without ranks that have left
	Outdated    bool // what a scheduler had submitted to the daemon before is about whoever is there
	Successor   bool // what waits for a rank is about the one that comes in its place
	Sender      bool // whatever is said of a take is heard, whichever node says it
	Asleep      bool // memory that is given up is said to be free of operations while they go on
	Torn        bool // what was moved at once in part is done
	Joined      bool // an offer that ranks make each for itself is whole without those that are not there
}

// MostCompletions is how many an operation may have: terminal, QUARANTINED, RELEASED. So many have room in the ring before it begins.
const MostCompletions = 3

// credits an operation reserves.
const (
	creditsMemory = MostCompletions
	creditsKey    = 1
	maxOwed       = 4096 // refusals a session leaves uncollected before it is ended
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
	def(&c.MaxHeld, maxHeldTokens)
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

// Reload takes over limits and times of a configuration for operations that begin from now on. Node, Incarnation and
// Random stay.
func (m *Machine) Reload(c Config) {
	c.setDefaults()
	c.Node, c.Incarnation, c.Random, c.Broken = m.cfg.Node, m.cfg.Incarnation, m.cfg.Random, m.cfg.Broken
	m.cfg, m.mostItems = c, max(m.mostItems, c.MaxItems)
}
