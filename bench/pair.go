package main

import (
	"path/filepath"
	"strconv"
)

// end is a client and the daemon that it talks to.
type end struct {
	*driven
	node string
	d    *daemon
}

// pair is two ends that hand blocks over to each other, through one daemon or
// through two.
type pair struct {
	a, b    *end
	daemons []*daemon
	e       *env
}

// clientArgs describe the memory of a client.
func clientArgs(s shape, more ...string) []string {
	return append([]string{"--block", strconv.Itoa(s.block), "--blocks", strconv.Itoa(s.blocks)}, more...)
}

// remotePair starts daemons a and b. cpuB is where b runs if a is pinned. Each
// knows the other's address, so the first take decides who dials.
func (e *env) remotePair(s setting, cpuB int, client []string) (p *pair, err error) {
	p = &pair{e: e}
	defer p.stopUnless(&err)
	addrA, err := freeAddr()
	if err != nil {
		return nil, err
	}
	addrB, err := freeAddr()
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(e.dir, e.unique("ca"))
	a, err := e.startDaemon("a", addrA, ca, s, map[string]string{"b": addrB})
	if err != nil {
		return nil, err
	}
	p.daemons = append(p.daemons, a)
	s.cpu = cpuB
	b, err := e.startDaemon("b", addrB, ca, s, map[string]string{"a": addrA})
	if err != nil {
		return nil, err
	}
	p.daemons = append(p.daemons, b)
	return p, p.clients(a, b, client)
}

// localPair starts one daemon that serves both ends.
func (e *env) localPair(s setting, client []string) (p *pair, err error) {
	p = &pair{e: e}
	defer p.stopUnless(&err)
	d, err := e.startDaemon("a", "off", filepath.Join(e.dir, e.unique("ca")), s, nil)
	if err != nil {
		return nil, err
	}
	p.daemons = append(p.daemons, d)
	return p, p.clients(d, d, client)
}

func (p *pair) clients(a, b *daemon, args []string) error {
	for i, d := range []*daemon{a, b} {
		engine := "bench-" + string(rune('a'+i))
		c, err := p.e.start("bench-client", append([]string{"--socket", d.socket, "--engine", engine}, args...)...)
		if err != nil {
			return err
		}
		if i == 0 {
			p.a = &end{c, d.node, d}
		} else {
			p.b = &end{c, d.node, d}
		}
	}
	return nil
}

func (p *pair) stopUnless(err *error) {
	if *err != nil {
		p.stop()
	}
}

func (p *pair) stop() {
	for _, d := range p.daemons {
		d.stopping.Store(true)
	}
	for _, c := range []*end{p.a, p.b} {
		if c != nil {
			c.stop()
		}
	}
	for _, d := range p.daemons {
		d.stop()
	}
}

// handOver moves the whole list from one end to the other, and returns what the
// taker measured.
func (p *pair) handOver(from, to *end) (answer, error) {
	key := p.e.unique("list-")
	if _, err := from.run("do=offer key=%s", key); err != nil {
		return answer{}, err
	}
	took, err := to.run("do=take key=%s%s", key, peerOf(from, to))
	if err != nil {
		return answer{}, err
	}
	_, err = from.run("do=wait")
	return took, err
}

// peerOf returns the peer argument for taking what `from` offers.
func peerOf(from, to *end) string {
	if from.d == to.d {
		return ""
	}
	return " peer=" + from.node
}

// verify moves the list once, with a pattern, and checks every byte. It warms
// up, and shows that what is measured is a hand-over.
func (p *pair) verify(from, to *end) error {
	p.e.serial++
	salt := p.e.serial
	if _, err := from.run("do=fill salt=%d", salt); err != nil {
		return err
	}
	if _, err := p.handOver(from, to); err != nil {
		return err
	}
	_, err := to.run("do=check salt=%d", salt)
	return err
}
