// Package fake is a transport within one process that goes wrong on purpose: slices are lost, late, doubled, reordered
// or corrupted, and fences fail for a while. One fault makes it ignore fences altogether, to show that tests would
// notice.
//
// A seed decides what happens: the same calls and the same number of Steps give the same run. Step does the next thing
// that is under way. Start does so in the background, for tests that wait for events instead.
package fake

import (
	"math/rand"
	"sync"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// Faults says how often each thing goes wrong, as chances from 0 to 1, each for one slice or fence.
type Faults struct {
	Drop      float64 // sent, but never lands: both ends see LinkLost
	Delay     float64 // put off, each time its turn comes
	Duplicate float64 // arrives a second time later
	Corrupt   float64 // arrives broken, and is found to be broken
	FenceFail float64 // Fenced reports a failure first, and success later
	// LateLanding breaks the transport: slices land although their leg is fenced. No promise holds.
	LateLanding bool
}

// Network connects nodes. Safe for concurrent use.
type Network struct {
	faults Faults

	step sync.Mutex // held during a Step, so that Steps have one order

	mu      sync.Mutex
	changed sync.Cond
	rnd     *rand.Rand
	nodes   map[string]*Transport
	flights []flight
	stopped bool
	pump    sync.WaitGroup
}

// flight is something under way. fly does its next part and says whether there is more.
type flight interface {
	fly() (more bool)
	// lose tells the flight that the link from one node to another is lost. It says whether the flight is over.
	lose(from, to string, epoch uint64) (over bool)
}

// New returns a network without nodes.
func New(seed int64, faults Faults) *Network {
	n := &Network{faults: faults, rnd: rand.New(rand.NewSource(seed)), nodes: map[string]*Transport{}}
	n.changed.L = &n.mu
	return n
}

// Node returns a new node's transport. Its name is what others post to; slices to "" stay on the node.
func (n *Network) Node(name string, sink transport.Sink) *Transport {
	t := newTransport(n, name, sink)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes[name] = t
	return t
}

// Start does Steps in the background until Stop.
func (n *Network) Start() {
	n.pump.Add(1)
	go func() {
		defer n.pump.Done()
		for n.wait() {
			n.Step()
		}
	}()
}

// wait returns true once something is under way, or false when the network is stopped.
func (n *Network) wait() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.flights) == 0 && !n.stopped {
		n.changed.Wait()
	}
	return !n.stopped
}

// Stop ends what Start began. What is under way stays where it is.
func (n *Network) Stop() {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	n.changed.Broadcast()
	n.pump.Wait()
}

// Step does the next part of something under way, chosen at random. False: nothing was.
func (n *Network) Step() bool {
	n.step.Lock()
	defer n.step.Unlock()
	n.mu.Lock()
	if len(n.flights) == 0 {
		n.mu.Unlock()
		return false
	}
	i := n.rnd.Intn(len(n.flights))
	f := n.flights[i]
	late := n.rnd.Float64() < n.faults.Delay
	if !late {
		last := len(n.flights) - 1
		n.flights[i] = n.flights[last]
		n.flights[last] = nil
		n.flights = n.flights[:last]
	}
	n.mu.Unlock()
	if !late && f.fly() {
		n.add(f)
	}
	return true
}

// Lose breaks the links between two nodes. What is on its way is lost, and both nodes are told.
func (n *Network) Lose(a, b string, epoch uint64) {
	n.drop(a, b, epoch)
	for _, end := range [][2]string{{a, b}, {b, a}} {
		if t := n.node(end[0]); t != nil {
			t.sink.Event(transfer.LinkLost{Node: end[1], Epoch: epoch})
		}
	}
}

// Down ends the channel of two nodes. What is on its way is lost, and what is posted later ends with PeerGone.
func (n *Network) Down(a, b string, epoch uint64) {
	for _, end := range [][2]string{{a, b}, {b, a}} {
		if t := n.node(end[0]); t != nil {
			t.down(end[1], epoch)
		}
	}
	n.drop(a, b, epoch)
}

func (n *Network) drop(a, b string, epoch uint64) {
	n.step.Lock()
	defer n.step.Unlock()
	n.mu.Lock()
	all := n.flights
	n.flights = nil
	n.mu.Unlock()
	for _, f := range all {
		if !f.lose(a, b, epoch) && !f.lose(b, a, epoch) {
			n.add(f)
		}
	}
}

func (n *Network) add(f flight) {
	n.mu.Lock()
	n.flights = append(n.flights, f)
	n.mu.Unlock()
	n.changed.Signal()
}

func (n *Network) node(name string) *Transport {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[name]
}

// chance is true with probability p.
func (n *Network) chance(p float64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p > 0 && n.rnd.Float64() < p
}
