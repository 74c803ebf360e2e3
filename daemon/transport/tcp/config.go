package tcp

import (
	"log/slog"
	"time"

	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// CRC says on which links payloads carry checksums.
type CRC int

const (
	// CRCAuto means: on plain links between hosts. TLS has better checks, and within a host bytes never leave memory.
	CRCAuto CRC = iota
	CRCOn
	CRCOff
)

// Config is what New needs. Only Sink is required.
type Config struct {
	Sink transport.Sink
	// Source reopens lost links. Without it they stay lost. See also SetSource.
	Source transport.LinkSource
	CRC    CRC
	// Spin is how long a plain link polls its socket before it waits in the kernel. 0: DefaultSpin; negative: not at
	// all.
	Spin time.Duration
	// Staged is the average run length in bytes below which a slice of a plain link is gathered into a buffer, instead
	// of being named to the kernel run by run. 0: DefaultStaged; negative: none is, unless it has more runs than are
	// looked up at a time.
	Staged int
	// Threads is how many goroutines of links may each keep a thread, to wait with or to stay near their memory. Those
	// of plain links that get none wait together, without a thread. 0: DefaultThreads; negative: none.
	Threads int
	// Places is where streams may run: each goes to the NUMA node of the memory at its end. nil: there is nothing to
	// choose.
	Places *place.Places
	Log    *slog.Logger
}

const (
	// DefaultSpin covers the wait for the other end of a busy stream. Longer spins would take the processor from that
	// end.
	DefaultSpin = 60 * time.Microsecond
	// DefaultStaged is where the trade-off turns: below it a copy costs less than the kernel's work per run.
	DefaultStaged = 4 << 10
	// DefaultThreads covers the links that are busy at the same time, in both directions. Links of idle peers need
	// none.
	DefaultThreads = 64
)

func (c *Config) fill() {
	if c.Spin == 0 {
		c.Spin = DefaultSpin
	}
	if c.Staged == 0 {
		c.Staged = DefaultStaged
	}
	if c.Threads == 0 {
		c.Threads = DefaultThreads
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// checksums decides whether slices sent over l carry checksums.
func (c CRC) checksums(l *transport.Link) bool {
	switch c {
	case CRCOn:
		return true
	case CRCOff:
		return false
	}
	if l.TCP == nil {
		return false
	}
	return !l.Here
}
