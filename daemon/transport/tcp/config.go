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
	// CRCAuto: on plain links between hosts. TLS has better ones, and within a host bytes never leave memory.
	CRCAuto CRC = iota
	CRCOn
	CRCOff
)

// Config is what New needs; Sink alone is required.
type Config struct {
	Sink transport.Sink
	// Source re-opens lost links; without it they stay lost. See also SetSource.
	Source transport.LinkSource
	CRC    CRC
	// Spin is how long a plain link asks the socket again before it waits for it. 0: DefaultSpin; negative: not at all.
	Spin time.Duration
	// Staged is the average length of runs, in bytes, below which a slice of a plain link is gathered into a buffer
	// instead of being named to the kernel run by run. 0: DefaultStaged; negative: never.
	Staged int
	// Threads is how many goroutines of plain links may each keep a thread while they wait; the others wait together, without.
	// 0: DefaultThreads; negative: none.
	Threads int
	// Places is where streams may run: each goes to where the memory of its end is. nil: there is nothing to choose.
	Places *place.Places
	Log    *slog.Logger
}

const (
	// DefaultSpin covers the wait for the other end of a busy stream. Longer spins take the processor from it.
	DefaultSpin = 60 * time.Microsecond
	// DefaultStaged: below it a copy costs less than the kernel's work per run.
	DefaultStaged = 4 << 10
	// DefaultThreads covers the links that are busy at once, with both their directions. Idle ones of further peers need none.
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
