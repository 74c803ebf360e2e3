package stats

import (
	"math"
	"slices"
)

// Percentile returns the p-th percentile (0..100) of xs, by linear
// interpolation between the two nearest ranks; NaN if xs is empty. xs is not
// changed.
func Percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(xs)
	slices.Sort(sorted)
	at := math.Min(math.Max(p, 0), 100) / 100 * float64(len(sorted)-1)
	low := int(at)
	if low == len(sorted)-1 {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Median is the 50th percentile.
func Median(xs []float64) float64 { return Percentile(xs, 50) }

// AA is the A/A spread: by how much one run of a thing typically differs from
// the next run of the same thing, as a share of it (0.03 is 3 %). It is the
// median over neighbouring runs of |ln(x[i+1]/x[i])|, so one disturbed run does
// not dominate it. 0 with fewer than two samples; samples must not be negative,
// and where most neighbours of a run that was 0 were not, it is no finite number.
func AA(xs []float64) float64 {
	if len(xs) < 2 {
		return 0
	}
	steps := make([]float64, len(xs)-1)
	for i := range steps {
		if xs[i+1] != xs[i] { // 0/0 is no number
			steps[i] = math.Abs(math.Log(xs[i+1] / xs[i]))
		}
	}
	return math.Expm1(Median(steps))
}

// PairedRatio is the median of ours[i]/ref[i]. The two took turns, so a longer
// disturbance of the machine affects both runs of a pair. Samples beyond the
// shorter slice are ignored. It is NaN if there is no pair.
func PairedRatio(ours, ref []float64) float64 {
	ratios := make([]float64, min(len(ours), len(ref)))
	for i := range ratios {
		ratios[i] = ours[i] / ref[i]
	}
	return Median(ratios)
}
