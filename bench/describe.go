package main

import (
	"github.com/kvpipe/kvpipe/bench/stats"
)

// describeGroup measures how long it takes to say which blocks. 262,144
// neighbouring blocks of 64 bytes are offered and taken. They merge into few
// runs, so little is copied. The time is that of the accepted offer plus that
// from take to done, copying included.
func describeGroup(limit float64) group {
	const row = "describe 262,144 ids, each"
	tiny := shape{"64", 64, 262144}
	return group{
		name:    "describe",
		targets: []target{{row, stats.AtMost, limit}},
		run: func(e *env, r *rows) error {
			p, err := e.localPair(setting{workers: 2, crc: "auto", cpu: -1}, clientArgs(tiny, "--tokens", "1", "--sequential"))
			if err != nil {
				return err
			}
			defer p.stop()
			if err := p.verify(p.a, p.b); err != nil {
				return err
			}
			var each []float64
			for range e.rounds {
				s, err := describeOnce(p)
				if err != nil {
					return err
				}
				each = append(each, s*1e6/float64(tiny.blocks))
			}
			r.absolute(row, us("kvpipe", each))
			return nil
		},
	}
}

// describeOnce returns the seconds that offering and taking the list took.
func describeOnce(p *pair) (float64, error) {
	key := p.e.unique("ids")
	offered, err := p.a.run("do=offer key=%s", key)
	if err != nil {
		return 0, err
	}
	taken, err := p.b.run("do=take key=%s", key)
	if err != nil {
		return 0, err
	}
	_, err = p.a.run("do=wait")
	return offered.Seconds + taken.Seconds, err
}
