package stats

import (
	"math"
	"strconv"
)

// Bound says on which side of its limit a value must lie.
type Bound string

// A target is "value Bound limit". A row without one is only reported.
const (
	AtLeast Bound = "at least"
	AtMost  Bound = "at most"
	None    Bound = ""
)

// Verdict is the last word of a row.
type Verdict string

const (
	Pass   Verdict = "pass"
	Short  Verdict = "short"  // missed, or not measured
	Report Verdict = "report" // there is no target
)

// Judge compares a value with its limit. A value that isn't a number is short.
func Judge(value float64, b Bound, limit float64) Verdict {
	switch {
	case b == None:
		return Report
	case math.IsNaN(value):
		return Short
	case b == AtLeast && value >= limit, b == AtMost && value <= limit:
		return Pass
	}
	return Short
}

// Series is one side's samples with their median and spread.
type Series struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Samples []float64 `json:"samples"`
	Median  Number    `json:"median"`
	AA      Number    `json:"aa"`
}

// NewSeries summarises samples, and keeps the slice.
func NewSeries(name, unit string, samples []float64) *Series {
	return &Series{Name: name, Unit: unit, Samples: samples, Median: Number(round(Median(samples))), AA: Number(round(AA(samples)))}
}

// Result is one row: what was measured, against what, and whether the target
// was met.
type Result struct {
	Row     string  `json:"row"`
	Ours    *Series `json:"ours,omitempty"`
	Ref     *Series `json:"reference,omitempty"`
	Value   *Number `json:"value"` // what the target is about: a ratio, or ours itself
	Unit    string  `json:"unit"`  // of Value; "x" for a ratio
	Bound   Bound   `json:"bound,omitempty"`
	Limit   float64 `json:"limit,omitempty"`
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note,omitempty"`
}

// Ratio makes the row for a target about ours against a reference that took
// turns with it.
func Ratio(row string, ours, ref *Series, b Bound, limit float64) Result {
	return judged(Result{Row: row, Ours: ours, Ref: ref, Unit: "x", Bound: b, Limit: limit},
		PairedRatio(ours.Samples, ref.Samples))
}

// Absolute makes the row for a target about ours alone.
func Absolute(row string, ours *Series, b Bound, limit float64) Result {
	return judged(Result{Row: row, Ours: ours, Unit: ours.Unit, Bound: b, Limit: limit}, Median(ours.Samples))
}

// Failed makes the row for something that could not be measured. It is short,
// with the reason as its note.
func Failed(row string, b Bound, limit float64, err error) Result {
	r := judged(Result{Row: row, Bound: b, Limit: limit}, math.NaN())
	r.Note = err.Error()
	return r
}

func judged(r Result, value float64) Result {
	n := Number(round(value))
	r.Value, r.Verdict = &n, Judge(value, r.Bound, r.Limit)
	return r
}

// round keeps four significant digits, which is more than any run reproduces.
func round(x float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	if err != nil {
		return x
	}
	return r
}
