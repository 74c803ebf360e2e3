package stats

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Number is a float64 whose JSON form is null if it isn't a number.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Head prints the heading of the rows that Line prints.
func Head(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%-34s %18s %18s %9s  %-15s %s\n",
		"", "ours (A/A)", "reference (A/A)", "result", "want", "")
	return err
}

// Line prints one row. Its last word is pass, short or report.
func Line(w io.Writer, r Result) error {
	value := "-"
	if r.Value != nil && !math.IsNaN(float64(*r.Value)) {
		value = number(float64(*r.Value)) + " " + r.Unit
	}
	want := ""
	if r.Bound != None {
		want = fmt.Sprintf("%s %s", r.Bound, number(r.Limit))
	}
	note := ""
	if r.Note != "" {
		note = "(" + r.Note + ") "
	}
	_, err := fmt.Fprintf(w, "%-34s %18s %18s %9s  %-15s %s%s\n",
		r.Row, r.Ours.String(), r.Ref.String(), value, want, note, r.Verdict)
	return err
}

// String is the median with its unit and A/A spread: "5.21 GB/s 2%".
func (s *Series) String() string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%s %s %3.0f%%", number(float64(s.Median)), s.Unit, float64(s.AA)*100)
}

func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case math.Abs(x) >= 100:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	case x == 0 || math.Abs(x) >= 0.1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// Summary counts the rows with a target, and the rows that are short.
func Summary(rows []Result) (targets, short int) {
	for _, r := range rows {
		if r.Bound != None {
			targets++
		}
		if r.Verdict == Short {
			short++
		}
	}
	return targets, short
}
