package main

import (
	"strconv"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// The tensors of a round: enough to keep the pipe full most of the time.
const (
	largeTensor, largeTensors = 1 << 20, 512
	smallTensor, smallTensors = 4 << 10, 50_000
)

// tensors is the memory that tensors are sent from. The references move it, too.
var tensors = shape{"1M", largeTensor, 256}

// through sends n tensors from one end of a pair to the other and returns what the receiver measured.
func (p *pair) through(n, size int) (answer, error) { return p.send(n, size, "recv") }

// send is through with a choice of what the receiver does.
func (p *pair) send(n, size int, receive string) (answer, error) {
	sent := make(chan error, 1)
	go func() {
		_, err := p.a.run("do=send n=%d size=%d", n, size)
		sent <- err
	}()
	got, err := p.b.run("do=%s n=%d size=%d", receive, n, size)
	if failed := <-sent; err == nil {
		err = failed
	}
	return got, err
}

// verifyTensors sends all of the memory, with a pattern, and checks every byte. It warms up, and shows that tensors
// arrive.
func (p *pair) verifyTensors(s shape, size int) error {
	p.e.serial++
	salt := p.e.serial
	if _, err := p.a.run("do=fill salt=%d", salt); err != nil {
		return err
	}
	if _, err := p.send(s.block*s.blocks/size, size, "keep"); err != nil {
		return err
	}
	_, err := p.b.run("do=check sent=1 salt=%d", salt)
	return err
}

// connect opens a pipe from a to b, and moves tensors of each size through it, which are checked.
func (p *pair) connect(sizes ...int) error {
	name := p.e.unique("pipe-")
	if _, err := p.a.run("do=source key=%s", name); err != nil {
		return err
	}
	if _, err := p.b.run("do=sink key=%s%s", name, peerOf(p.a, p.b)); err != nil {
		return err
	}
	for _, size := range sizes {
		if err := p.verifyTensors(tensors, size); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) rate(n, size int) gauge {
	return func() (float64, error) {
		a, err := p.through(n, size)
		return a.GBps, err
	}
}

// pipeGroup measures tensors from one process to another through one daemon: large ones against one thread's memcpy,
// small ones by number.
func pipeGroup(ratio, number float64) group {
	const large, small = "pipe, 1 MiB tensors, local", "pipe, 4 KiB tensors a second, local"
	return group{
		name:    "pipe local",
		targets: []target{{large, stats.AtLeast, ratio}, {small, stats.AtLeast, number}},
		run: func(e *env, r *rows) error {
			ref, err := e.startRef("ref-memcpy", tensors)
			if err != nil {
				return err
			}
			defer ref.stop()
			p, err := e.localPair(setting{workers: 1, crc: "auto", cpu: -1}, clientArgs(tensors))
			if err != nil {
				return err
			}
			defer p.stop()
			if err := p.connect(smallTensor, largeTensor); err != nil {
				return err
			}
			got, err := e.turns(p.rate(largeTensors, largeTensor), rate(ref, "threads=1"), func() (float64, error) {
				a, err := p.through(smallTensors, smallTensor)
				return a.PerS, err
			})
			if err != nil {
				return err
			}
			r.ratio(large, gbps("kvpipe", got[0]), gbps("memcpy, one thread", got[1]), "")
			r.absolute(small, stats.NewSeries("kvpipe", "/s", got[2]))
			return nil
		},
	}
}

// pipeTCPGroup measures large tensors between two nodes against the best way in which a plain C program moves as
// much.
func pipeTCPGroup(limit float64) group {
	const row = "pipe, 1 MiB tensors, tcp"
	const streams = 2
	return group{
		name:    "pipe tcp",
		targets: []target{{row, stats.AtLeast, limit}},
		run: func(e *env, r *rows) error {
			ref, err := e.startRef("ref-tcp", tensors)
			if err != nil {
				return err
			}
			defer ref.stop()
			p, err := e.remotePair(plainSetting(streams, "off"), -1, clientArgs(tensors))
			if err != nil {
				return err
			}
			defer p.stop()
			if err := p.connect(largeTensor); err != nil {
				return err
			}
			return againstBestOf(e, r, row, ref, directions[0], streams, p.rate(largeTensors, largeTensor))
		},
	}
}

// lookupGroup compares finding one of many entries with finding one of few, both locally and one at a time.
func lookupGroup(limit float64) group {
	const many, few = 100_000, 10
	row := "drop_select, one of " + strconv.Itoa(many) + " / of " + strconv.Itoa(few)
	return group{
		name:    "lookup",
		targets: []target{{row, stats.AtMost, limit}},
		run: func(e *env, r *rows) error {
			p, err := e.localPair(setting{workers: 1, crc: "auto", cpu: -1}, clientArgs(shape{"1M", 1 << 20, 1}))
			if err != nil {
				return err
			}
			defer p.stop()
			for c, n := range map[*end]int{p.a: many, p.b: few} {
				if _, err := c.run("do=insert key=%s n=%d", e.unique("buffer-"), n); err != nil {
					return err
				}
			}
			selects := func(c *end) gauge {
				return func() (float64, error) {
					a, err := c.run("do=selects n=%d", e.small)
					return a.P50, err
				}
			}
			got, err := e.turns(selects(p.a), selects(p.b))
			if err != nil {
				return err
			}
			r.ratio(row, us("of 100,000", got[0]), us("of 10", got[1]), "")
			return nil
		},
	}
}
