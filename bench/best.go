package main

import (
	"cmp"
	"slices"

	"github.com/kvpipe/kvpipe/bench/stats"
)

// leaders is how many ways are measured a second time.
const leaders = 3

// bestWay returns the way with the best median. All ways take turns three
// times; then the leaders take turns five more times, and only those rounds
// decide. The rounds that picked the leaders do not count again: the largest of
// several medians is by chance larger than the true value.
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
