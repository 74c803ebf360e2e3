package nic

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseRate reads a port's rate, such as "100 Gb/sec (4X EDR)" or "2.5 Gb/sec (1X SDR)", in megabits per second.
func parseRate(s string) (mbps int, err error) {
	value, rest, _ := strings.Cut(s, " ")
	gbps, err := strconv.ParseFloat(value, 64)
	if err != nil || !strings.HasPrefix(rest, "Gb/sec") || !(gbps >= 0 && gbps <= 1e6) {
		return 0, fmt.Errorf("rate %q: expected gigabits, as \"100 Gb/sec (4X EDR)\"", s)
	}
	return int(math.Round(gbps * 1000)), nil
}
