package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table aligns columns. Rows appear when it is flushed.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

// row adds a row of cells. Tabs and line ends within a cell become spaces.
func (t table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.Map(tameCell, c)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func (t table) flush() { _ = t.w.Flush() }

func size(n uint64) string {
	const units = "KMGTP"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.4g %ciB", v, units[i])
}

func rate(gbps float64) string {
	if gbps <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f GB/s", gbps)
}

// rates shows both directions, or one if the other is not known. Within a node both are the same.
func rates(in, out float64) string {
	switch {
	case in == out:
		return rate(in)
	case out <= 0:
		return rate(in) + " in"
	case in <= 0:
		return rate(out) + " out"
	}
	return rate(in) + " in, " + rate(out) + " out"
}

// age writes seconds for people; short does so for durations of single operations.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func short(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "-"
	case d < time.Millisecond:
		return d.Round(100 * time.Nanosecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// micros is short for a column whose rows are to be compared: all in one unit.
func micros(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fµs", seconds*1e6)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orOff(s string) string {
	if s == "" {
		return "off"
	}
	return s
}
