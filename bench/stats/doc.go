// Package stats turns the samples of a benchmark into what is printed about
// them: medians and percentiles, how much two runs of the same thing differ
// (A/A), the ratio of two things that took turns in one run, and whether a
// target was met. It is pure: it measures nothing and reads no clock.
package stats
