package stats

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestPercentile(t *testing.T) {
	xs := []float64{5, 1, 4, 2, 3}
	for _, c := range []struct{ p, want float64 }{
		{0, 1}, {25, 2}, {50, 3}, {100, 5}, {-1, 1}, {101, 5}, {90, 4.6},
	} {
		if got := Percentile(xs, c.p); !near(got, c.want) {
			t.Errorf("Percentile(%v) = %v, want %v", c.p, got, c.want)
		}
	}
	if xs[0] != 5 {
		t.Error("Percentile sorted its argument")
	}
	if got := Median([]float64{1, 2}); !near(got, 1.5) {
		t.Errorf("Median of 1, 2 = %v", got)
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("Median of nothing is a number")
	}
}

func TestAA(t *testing.T) {
	if got := AA([]float64{2, 2, 2}); got != 0 {
		t.Errorf("AA of equal runs = %v", got)
	}
	if got := AA([]float64{1, 1.1, 1}); !near(got, 0.1) {
		t.Errorf("AA of 10 %% steps = %v", got)
	}
	// A single bad run of many is not what runs typically do.
	if got := AA([]float64{1, 1, 1, 9, 1, 1, 1}); got != 0 {
		t.Errorf("AA with one outlier = %v", got)
	}
	if got := AA([]float64{1}); got != 0 {
		t.Errorf("AA of one run = %v", got)
	}
}

func TestPairedRatio(t *testing.T) {
	// Both halve in the middle pair: the ratio must not notice.
	if got := PairedRatio([]float64{3, 1.5, 3}, []float64{2, 1, 2}); !near(got, 1.5) {
		t.Errorf("ratio = %v, want 1.5", got)
	}
	if got := PairedRatio([]float64{3, 100}, []float64{2}); !near(got, 1.5) {
		t.Errorf("ratio of uneven series = %v, want 1.5", got)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		value float64
		b     Bound
		limit float64
		want  Verdict
	}{
		{1.35, AtLeast, 1.35, Pass}, {1.34, AtLeast, 1.35, Short},
		{1.5, AtMost, 1.5, Pass}, {1.51, AtMost, 1.5, Short},
		{math.NaN(), AtLeast, 1, Short}, {math.NaN(), AtMost, 1, Short},
		{7, None, 0, Report},
	} {
		if got := Judge(c.value, c.b, c.limit); got != c.want {
			t.Errorf("Judge(%v %s %v) = %s, want %s", c.value, c.b, c.limit, got, c.want)
		}
	}
}

// What is judged is what was measured, not what is printed of it.
func TestAbsoluteJudgesWhatWasMeasured(t *testing.T) {
	for _, c := range []struct {
		x    float64
		b    Bound
		want Verdict
	}{{50.004, AtMost, Short}, {49.996, AtLeast, Short}, {50, AtMost, Pass}, {50, AtLeast, Pass}} {
		if got := Absolute("row", NewSeries("x", "us", []float64{c.x}), c.b, 50).Verdict; got != c.want {
			t.Errorf("%v, %s 50: %s, want %s", c.x, c.b, got, c.want)
		}
	}
}

func TestRows(t *testing.T) {
	ref := NewSeries("memcpy", "GB/s", []float64{6, 6})
	rows := []Result{
		Ratio("local 64K, 1 worker", NewSeries("kvpipe", "GB/s", []float64{9, 9}), ref, AtLeast, 1.35),
		Ratio("local 64K, 2 workers", NewSeries("kvpipe", "GB/s", []float64{12, 12}), ref, AtLeast, 2.5),
		Absolute("tcp busy", NewSeries("kvpipe", "us", []float64{42}), None, 0),
		Failed("idle", AtMost, 50, errors.New("no daemon")),
	}
	if targets, short := Summary(rows); targets != 3 || short != 2 {
		t.Errorf("%d targets, %d short, want 3 and 2", targets, short)
	}
	var b strings.Builder
	for _, r := range rows {
		if err := Line(&b, r); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, want := range []string{"pass", "short", "report", "short"} {
		words := strings.Fields(lines[i])
		if got := words[len(words)-1]; got != want {
			t.Errorf("last word of %q is %s, want %s", lines[i], got, want)
		}
	}
	if !strings.Contains(lines[3], "no daemon") {
		t.Errorf("%q does not say why", lines[3])
	}
}

func TestJSON(t *testing.T) {
	out, err := json.Marshal(Failed("idle", AtMost, 50, errors.New("no daemon")))
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if v, there := back["value"]; !there || v != nil || back["verdict"] != "short" {
		t.Errorf("unmeasured row is %s", out)
	}
	s := NewSeries("x", "us", []float64{1.23456, 1.23456})
	if s.Median != 1.235 {
		t.Errorf("median is %v, want four digits", s.Median)
	}
}

func TestEmptySeriesMarshals(t *testing.T) {
	if _, err := json.Marshal(Absolute("row", NewSeries("x", "us", nil), AtMost, 1)); err != nil {
		t.Errorf("a series without samples has no JSON: %v", err)
	}
}

// An idle daemon may use no time at all in one window. Results of all other rows are in the same file.
func TestZeroSamplesMarshal(t *testing.T) {
	for _, xs := range [][]float64{{0, 0, 0}, {0, 1, 0}} {
		if _, err := json.Marshal(Absolute("row", NewSeries("x", "%", xs), AtMost, 1)); err != nil {
			t.Errorf("%v has no JSON: %v", xs, err)
		}
	}
}
