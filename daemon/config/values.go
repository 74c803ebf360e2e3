package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that reads "250ms", "30s", "10m".
type Duration time.Duration

// D returns d as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

func (d Duration) String() string { return d.D().String() }

func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration: write a number with a unit, such as \"250ms\", \"30s\" or \"10m\"", b)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Size is a number of bytes that reads "64KiB", "1GiB", "512MiB", or a plain number in quotes.
type Size uint64

var units = []struct {
	name  string
	bytes uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

func (s *Size) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	for _, u := range units {
		number, found := strings.CutSuffix(text, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil || n > ^uint64(0)/u.bytes {
			break
		}
		*s = Size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write a number with a unit, such as \"64KiB\", \"512MiB\" or \"1TiB\"", b)
}

// String writes the size as UnmarshalText reads it, in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range units {
		if u.bytes > 1 && uint64(s) >= u.bytes && uint64(s)%u.bytes == 0 {
			return strconv.FormatUint(uint64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10) + "B"
}

func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
