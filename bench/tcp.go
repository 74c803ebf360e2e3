package main

import (
	"fmt"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// direction says who sends: the daemon that dialed (as the process that dials
// does in ref-tcp), or the one that was dialed. The taker's daemon begins the
// hand-over, so with both directions each daemon is measured as the one that
// begins.
type direction struct{ name, ref string }

var directions = []direction{{"A to B", "ab"}, {"B to A", "ba"}}

func (d direction) ends(p *pair) (from, to *end) {
	if d.ref == "ab" {
		return p.a, p.b
	}
	return p.b, p.a
}

// plainSetting is for daemons whose data links are bare TCP.
func plainSetting(streams int, crc string) setting {
	return setting{streams: streams, plain: true, crc: crc, cpu: -1}
}

// startRemote starts a pair, has A dial B by taking from it, and verifies the
// list in both directions.
func (e *env) startRemote(set setting, s shape) (*pair, error) {
	p, err := e.remotePair(set, set.cpu, clientArgs(s))
	if err != nil {
		return nil, err
	}
	if err = p.verify(p.b, p.a); err == nil {
		err = p.verify(p.a, p.b)
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// sndbuf is the send buffer that a daemon gives its plain links over loopback,
// in bytes.
const sndbuf = "524288"

// tcpGroup measures two daemons, with plain links and no CRC, against the best
// way in which a plain C program moves the same list with the kernel's buffers.
// A row without a target does the same with the daemon's send buffer.
func tcpGroup(s shape, streams int, limit float64) group {
	row := func(d direction) string { return fmt.Sprintf("tcp %s, %d stream(s), %s", s.name, streams, d.name) }
	g := group{name: fmt.Sprintf("tcp %s %d", s.name, streams)}
	bounded := fmt.Sprintf("tcp %s, %d stream(s), same send buffer", s.name, streams)
	for _, d := range directions {
		g.targets = append(g.targets, target{row(d), stats.AtLeast, limit})
	}
	g.targets = append(g.targets, target{bounded, stats.None, 0})
	g.run = func(e *env, r *rows) error {
		ref, err := e.startRef("ref-tcp", s)
		if err != nil {
			return err
		}
		defer ref.stop()
		same, err := e.startRef("ref-tcp", s, "--sndbuf", sndbuf)
		if err != nil {
			return err
		}
		defer same.stop()
		p, err := e.startRemote(plainSetting(streams, "off"), s)
		if err != nil {
			return err
		}
		defer p.stop()
		for _, d := range directions {
			if err := againstBest(e, r, row(d), ref, d, streams, p); err != nil {
				return err
			}
		}
		return againstBest(e, r, bounded, same, directions[0], streams, p)
	}
	return g
}

// modes are ref-tcp's ways to wait and to read.
func modes(streams int) []string {
	var out []string
	for _, mode := range []string{"blocking", "waitall", "rcvlowat", "spin", "rspin", "bspin"} {
		// Two spinning streams are worth a try only with four processors.
		if mode == "spin" && streams > 1 && numCPU() < 2*streams {
			continue
		}
		for joint := range 2 {
			out = append(out, fmt.Sprintf("mode=%s joint=%d", mode, joint))
		}
	}
	return out
}

// againstBest lets ours take turns with the way of the reference that suits
// this machine best.
func againstBest(e *env, r *rows, row string, ref *driven, d direction, streams int, p *pair) error {
	from, to := d.ends(p)
	return againstBestOf(e, r, row, ref, d, streams, rateOf(p, from, to))
}

func againstBestOf(e *env, r *rows, row string, ref *driven, d direction, streams int, ours gauge) error {
	best, err := bestWay(modes(streams), func(mode string) gauge {
		return rate(ref, "%s dir=%s streams=%d", mode, d.ref, streams)
	})
	if err != nil {
		return err
	}
	if _, err := ref.run("%s dir=%s streams=%d verify=1", best, d.ref, streams); err != nil {
		return err
	}
	got, err := e.turns(ours, rate(ref, "%s dir=%s streams=%d", best, d.ref, streams))
	if err != nil {
		return err
	}
	r.ratio(row, gbps("kvpipe", got[0]), gbps("ref-tcp "+best, got[1]), "")
	return nil
}

// crcGroup measures checksums on against off, each with daemons of its own.
func crcGroup(s shape, streams int, limit float64) group {
	row := fmt.Sprintf("tcp %s, %d stream(s), CRC on/off", s.name, streams)
	return group{
		name:    fmt.Sprintf("crc %s %d", s.name, streams),
		targets: []target{{row, stats.AtLeast, limit}},
		run: func(e *env, r *rows) error {
			on, err := e.startRemote(plainSetting(streams, "on"), s)
			if err != nil {
				return err
			}
			defer on.stop()
			off, err := e.startRemote(plainSetting(streams, "off"), s)
			if err != nil {
				return err
			}
			defer off.stop()
			got, err := e.turns(rateOf(on, on.a, on.b), rateOf(off, off.a, off.b))
			if err != nil {
				return err
			}
			r.ratio(row, gbps("kvpipe, CRC on", got[0]), gbps("kvpipe, CRC off", got[1]), "")
			return nil
		},
	}
}
