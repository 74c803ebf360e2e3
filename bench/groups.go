package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// target is one row before it is measured. A row without a bound has no target
// and is only reported.
type target struct {
	row   string
	bound stats.Bound
	limit float64
}

// group is a set of rows measured together because they take turns or share
// daemons.
type group struct {
	name    string
	targets []target
	run     func(e *env, r *rows) error
}

// shape is the size and number of a list's blocks: many small ones, or few
// large ones.
type shape struct {
	name          string
	block, blocks int
}

var (
	large = shape{"64K", 64 << 10, 16384}
	small = shape{"8K", 8 << 10, 40960}
)

// groups are all rows of the benchmark, with their targets.
var groups = []group{
	localGroup(large, 1.35, 2.5),
	localGroup(small, 1.2, 2.2),
	tcpGroup(large, 2, 1.0), tcpGroup(large, 1, 0.95),
	tcpGroup(small, 2, 1.0), tcpGroup(small, 1, 0.95),
	crcGroup(large, 2, 0.6), crcGroup(large, 1, 0.6),
	crcGroup(small, 2, 0.6), crcGroup(small, 1, 0.6),
	tlsGroup(large, 2, 0.9), tlsGroup(large, 1, 0.9),
	tlsGroup(small, 2, 0.85), tlsGroup(small, 1, 0.85),
	latencyGroup(1.5),
	busyGroup(3, 5),
	neighbourGroup(2),
	describeGroup(0.1),
	pipeGroup(0.4, 100_000),
	pipeTCPGroup(0.8),
	lookupGroup(1.2),
	idleGroup(0.1, 50),
	reattachGroup(64, 1000, 200),
}

func (g group) matches(text string) bool {
	if strings.Contains(g.name, text) {
		return true
	}
	for _, t := range g.targets {
		if strings.Contains(t.row, text) {
			return true
		}
	}
	return false
}

// measure runs the group and returns exactly one row for each of its targets. A
// row that could not be measured is short, and its note says why.
func (g group) measure(e *env) []stats.Result {
	fmt.Fprintf(os.Stderr, "measuring %s\n", g.name)
	r := &rows{targets: g.targets, got: map[string]stats.Result{}}
	err := g.run(e, r)
	out := make([]stats.Result, 0, len(g.targets))
	for _, t := range g.targets {
		row, there := r.got[t.row]
		if !there {
			why := err
			if why == nil {
				why = errors.New("not measured")
			}
			row = stats.Failed(t.row, t.bound, t.limit, why)
		}
		out = append(out, row)
	}
	return out
}

// rows collects what a group measured.
type rows struct {
	targets []target
	got     map[string]stats.Result
}

func (r *rows) target(row string) target {
	for _, t := range r.targets {
		if t.row == row {
			return t
		}
	}
	panic("no target is named " + row)
}

// ratio adds the row of ours against a reference that took turns with it.
func (r *rows) ratio(row string, ours, ref *stats.Series, note string) {
	t := r.target(row)
	res := stats.Ratio(row, ours, ref, t.bound, t.limit)
	res.Note = note
	r.got[row] = res
}

// absolute adds a row about ours alone.
func (r *rows) absolute(row string, ours *stats.Series) {
	t := r.target(row)
	r.got[row] = stats.Absolute(row, ours, t.bound, t.limit)
}
