package main

import (
	"fmt"
	"runtime"
	"strconv"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// All small hand-overs are pinned: the clients and the producer's daemon to one CPU, the taker's daemon to another.
// Unpinned, a round trip takes anything from 2 to 60 us, and ratios mean nothing.
const (
	clientCPU = 0
	takerCPU  = 1
)

var page = shape{"4K", 4096, 1024}

func numCPU() int { return runtime.NumCPU() }

// trips are the round trips of each round, in us.
type trips struct{ p50, p99 []float64 }

func (t *trips) add(a answer) {
	t.p50 = append(t.p50, a.P50)
	t.p99 = append(t.p99, a.P99)
}

func us(name string, samples []float64) *stats.Series { return stats.NewSeries(name, "us", samples) }

// handOvers moves single 4 KiB blocks, one at a time, after all have been offered.
func (p *pair) handOvers(n int, from, to *end) (answer, error) { return p.takes(n, from, to, "") }

// takes is handOvers with further arguments for the taker.
func (p *pair) takes(n int, from, to *end, how string) (answer, error) {
	key := p.e.unique("small")
	if _, err := from.run("do=offers key=%s n=%d", key, n); err != nil {
		return answer{}, err
	}
	took, err := to.run("do=takes key=%s n=%d%s%s", key, n, peerOf(from, to), how)
	if err != nil {
		return answer{}, err
	}
	_, err = from.run("do=wait")
	return took, err
}

// small4K are the clients' flags for single pages. The producer collects no completions while its offers are taken,
// so there has to be room for those of all offers. With less room its daemon checks for room all the time.
func small4K() []string {
	return clientArgs(page, "--cpu", strconv.Itoa(clientCPU), "--completions", "8192")
}

// smallLocal starts one daemon on the taker's CPU.
func (e *env) smallLocal(busy bool) (*pair, error) {
	p, err := e.localPair(setting{busy: busy, crc: "auto", cpu: takerCPU}, small4K())
	return verified(p, err)
}

// smallRemote starts two daemons. a is the producer's, so it shares the clients' CPU.
func (e *env) smallRemote(busy bool) (*pair, error) {
	p, err := e.remotePair(setting{busy: busy, crc: "auto", cpu: clientCPU}, takerCPU, small4K())
	return verified(p, err)
}

// verified moves the list of a fresh pair once, from a to b.
func verified(p *pair, err error) (*pair, error) {
	if err != nil {
		return nil, err
	}
	if err = p.verify(p.a, p.b); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// latencyGroup compares hand-overs in which nobody spins with bare round trips of the same run.
func latencyGroup(limit float64) group {
	row := func(path, p string) string { return fmt.Sprintf("4 KiB %s, %s", path, p) }
	g := group{name: "latency"}
	for _, path := range []string{"local", "tcp"} {
		g.targets = append(g.targets, target{row(path, "p50"), stats.AtMost, limit}, target{row(path, "p99"), stats.AtMost, limit})
	}
	g.run = func(e *env, r *rows) error {
		ref, err := e.start("ref-latency", "--serve", "--client-cpu", strconv.Itoa(clientCPU), "--server-cpu", strconv.Itoa(takerCPU))
		if err != nil {
			return err
		}
		defer ref.stop()
		local, err := e.smallLocal(false)
		if err != nil {
			return err
		}
		defer local.stop()
		remote, err := e.smallRemote(false)
		if err != nil {
			return err
		}
		defer remote.stop()
		var event, both, here, there trips
		parts := []part{
			{&event, func() (answer, error) { return ref.run("kind=eventfd n=%d", e.small) }},
			{&both, func() (answer, error) { return ref.run("kind=both n=%d", e.small) }},
			{&here, func() (answer, error) { return local.handOvers(e.small, local.a, local.b) }},
			{&there, func() (answer, error) { return remote.handOvers(e.small, remote.a, remote.b) }},
		}
		if err := e.smallTurns(parts); err != nil {
			return err
		}
		r.ratio(row("local", "p50"), us("kvpipe", here.p50), us("eventfd", event.p50), "")
		r.ratio(row("local", "p99"), us("kvpipe", here.p99), us("eventfd", event.p99), "")
		r.ratio(row("tcp", "p50"), us("kvpipe", there.p50), us("eventfd + TCP", both.p50), "")
		r.ratio(row("tcp", "p99"), us("kvpipe", there.p99), us("eventfd + TCP", both.p99), "")
		return nil
	}
	return g
}

// part is one thing whose round trips are measured.
type part struct {
	into    *trips
	measure func() (answer, error)
}

// smallTurns is turns for measurements that yield two percentiles.
func (e *env) smallTurns(parts []part) error {
	for round := range e.rounds {
		for i := range parts {
			p := parts[(i+round)%len(parts)]
			a, err := p.measure()
			if err != nil {
				return err
			}
			p.into.add(a)
		}
	}
	return nil
}

// A round of the busy group is settling untimed hand-overs and then most timed ones. Of only a few hundred, 1 % would
// be two or three interruptions by the machine.
const (
	settling = 300
	most     = 1500
)

// busyGroup measures daemons that poll instead of sleeping, with takers that poll, too.
func busyGroup(p50, p99 float64) group {
	return group{
		name: "busy",
		targets: []target{
			{"4 KiB local, busy, p50", stats.AtMost, p50}, {"4 KiB local, busy, p99", stats.AtMost, p99},
			{"4 KiB tcp, busy, p50", stats.None, 0}, {"4 KiB tcp, busy, p99", stats.None, 0},
		},
		run: func(e *env, r *rows) error {
			for path, open := range map[string]func(bool) (*pair, error){"local": e.smallLocal, "tcp": e.smallRemote} {
				// One after the other: daemons that poll get in each other's way.
				t, err := e.spinning(open)
				if err != nil {
					return err
				}
				r.absolute("4 KiB "+path+", busy, p50", us("kvpipe", t.p50))
				r.absolute("4 KiB "+path+", busy, p99", us("kvpipe", t.p99))
			}
			return nil
		},
	}
}

// spinning measures a pair whose taker polls like its daemon.
func (e *env) spinning(open func(busy bool) (*pair, error)) (t trips, err error) {
	p, err := open(true)
	if err != nil {
		return t, err
	}
	defer p.stop()
	// The first hand-overs meet a daemon that fell asleep after the last round, a Go runtime that has just begun to
	// look after a thread that never rests, and the client that asked for them still on a processor. They do not show
	// what a polling daemon gives.
	err = e.smallTurns([]part{{&t, func() (answer, error) {
		return p.takes(settling+most, p.a, p.b, fmt.Sprintf(" spin=1 settle=%d", settling))
	}}})
	return t, err
}
