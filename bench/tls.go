package main

import (
	"fmt"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// tlsGroup measures two daemons with encrypted links against the better of two
// bare crypto/tls programs: one writes block by block, the other gathers 256
// KiB before each write.
func tlsGroup(s shape, streams int, limit float64) group {
	row := fmt.Sprintf("tls %s, %d stream(s)", s.name, streams)
	return group{
		name:    fmt.Sprintf("tls %s %d", s.name, streams),
		targets: []target{{row, stats.AtLeast, limit}},
		run: func(e *env, r *rows) error {
			ref, err := e.startRef("ref-tls", s)
			if err != nil {
				return err
			}
			defer ref.stop()
			for _, stage := range []int{0, 256 << 10} {
				if _, err := ref.run("streams=%d stage=%d verify=1", streams, stage); err != nil {
					return err
				}
			}
			p, err := e.startRemote(setting{streams: streams, crc: "auto", cpu: -1}, s)
			if err != nil {
				return err
			}
			defer p.stop()
			best, err := bestWay([]string{"stage=0", "stage=262144"}, func(way string) gauge {
				return rate(ref, "streams=%d %s", streams, way)
			})
			if err != nil {
				return err
			}
			got, err := e.turns(rateOf(p, p.a, p.b), rate(ref, "streams=%d %s", streams, best))
			if err != nil {
				return err
			}
			r.ratio(row, gbps("kvpipe", got[0]), gbps("crypto/tls "+best, got[1]), "")
			return nil
		},
	}
}
