package main

import (
	"fmt"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// localGroup measures hand-overs between two engines of one node against one
// thread's memcpy of the very same list. Daemons with one and with two copy
// workers take turns with it. So do two threads of a C program that copies as
// they do: they show what the machine's memory gives, since on some machines
// one thread takes most of it.
func localGroup(s shape, one, two float64) group {
	row := func(workers int) string { return fmt.Sprintf("local %s, %d copy worker(s)", s.name, workers) }
	plainC := fmt.Sprintf("%s, two threads of plain C, non-temporal", s.name)
	return group{
		name:    "local " + s.name,
		targets: []target{{row(1), stats.AtLeast, one}, {row(2), stats.AtLeast, two}, {plainC, stats.None, 0}},
		run: func(e *env, r *rows) error {
			ref, err := e.startRef("ref-memcpy", s)
			if err != nil {
				return err
			}
			defer ref.stop()
			gauges := []gauge{rate(ref, "threads=1")}
			if _, err := ref.run("threads=1 verify=1"); err != nil {
				return err
			}
			for workers := 1; workers <= 2; workers++ {
				p, err := e.localPair(setting{workers: workers, crc: "auto", cpu: -1}, clientArgs(s))
				if err != nil {
					return err
				}
				defer p.stop()
				if err := p.verify(p.a, p.b); err != nil {
					return err
				}
				gauges = append(gauges, rateOf(p, p.a, p.b))
			}
			_, cannot := ref.run("threads=2 stream=1 verify=1")
			if cannot == nil {
				gauges = append(gauges, rate(ref, "threads=2 stream=1"))
			}
			got, err := e.turns(gauges...)
			if err != nil {
				return err
			}
			memcpy := gbps("memcpy, one thread", got[0])
			r.ratio(row(1), gbps("kvpipe", got[1]), memcpy, "")
			r.ratio(row(2), gbps("kvpipe", got[2]), memcpy, "")
			if cannot != nil {
				return cannot
			}
			r.ratio(plainC, gbps("two threads, stream", got[3]), memcpy, "")
			return nil
		},
	}
}
