package main

import "github.com/kvpipe/kvpipe/bench/stats"

// gauge measures one thing once, and returns the number that counts.
type gauge func() (float64, error)

// turns lets the gauges take turns, round by round, and returns one slice of
// samples for each. Each round begins with another gauge, so that none always
// runs right after the same other one.
func (e *env) turns(gauges ...gauge) ([][]float64, error) {
	samples := make([][]float64, len(gauges))
	for round := range e.rounds {
		for i := range gauges {
			g := (i + round) % len(gauges)
			x, err := gauges[g]()
			if err != nil {
				return nil, err
			}
			samples[g] = append(samples[g], x)
		}
	}
	return samples, nil
}

// rate is the gauge of one reference round, in GB/s.
func rate(d *driven, format string, args ...any) gauge {
	return func() (float64, error) {
		a, err := d.run(format, args...)
		return a.GBps, err
	}
}

// rateOf is the gauge of one hand-over of the whole list, in GB/s.
func rateOf(p *pair, from, to *end) gauge {
	return func() (float64, error) {
		a, err := p.handOver(from, to)
		return a.GBps, err
	}
}

func gbps(name string, samples []float64) *stats.Series {
	return stats.NewSeries(name, "GB/s", samples)
}
