package main

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// leaders is how many ways are worth a second look.
const leaders = 3

// bestWay returns the way with the best median. Each is tried three times, in
// turns; those that lead five times more, which alone decide. What chose a way
// is not used to judge by it: the largest of several medians is larger than
// the thing itself, by chance.
func bestWay(ways []string, by func(way string) gauge) (string, error) {
	for _, tries := range []int{3, 5} {
		gauges := make([]gauge, len(ways))
		for i, way := range ways {
			gauges[i] = by(way)
		}
		got, err := (&env{rounds: tries}).turns(gauges...)
		if err != nil {
			return "", err
		}
		median := make(map[string]float64, len(ways))
		for i, way := range ways {
			median[way] = stats.Median(got[i])
		}
		slices.SortFunc(ways, func(x, y string) int { return cmp.Compare(median[y], median[x]) })
		ways = ways[:min(leaders, len(ways))]
	}
	return ways[0], nil
}
