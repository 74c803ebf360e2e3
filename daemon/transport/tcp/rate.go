package tcp

import "time"

// rate is a moving average of how fast a channel moves bytes in one direction while there is something to move, in
// bytes per second.
type rate struct {
	avg   float64
	bytes int
	since time.Time // zero: nothing to move
	last  stretch   // the previous sample; zero if there is none since begin
}

type stretch struct {
	bytes int
	took  time.Duration
}

const (
	// sampleTime is how long a sample takes. Shorter ones would measure the socket's buffer.
	sampleTime = 10 * time.Millisecond
	// sampleBytes is the least that counts in a sample that a pause cuts short.
	sampleBytes = 4 << 20
	// sampleWeight is the weight of a new sample in the average.
	sampleWeight = 0.2
)

func (r *rate) begin(now time.Time) {
	if r.since.IsZero() {
		r.since, r.bytes, r.last = now, 0, stretch{}
	}
}

func (r *rate) add(now time.Time, n int) {
	r.bytes += n
	if now.Sub(r.since) >= sampleTime {
		r.sample(now)
	}
}

// pause ends a sample early and joins it with the one before. Links count bytes only once they have moved them, so what
// is counted in a short time may have taken longer to move.
func (r *rate) pause(now time.Time) {
	if r.bytes >= sampleBytes {
		r.bytes += r.last.bytes
		r.since = r.since.Add(-r.last.took)
		r.sample(now)
	}
	r.since = time.Time{}
}

func (r *rate) sample(now time.Time) {
	took := max(now.Sub(r.since), time.Microsecond)
	v := float64(r.bytes) / took.Seconds()
	if r.avg == 0 {
		r.avg = v
	} else {
		r.avg += sampleWeight * (v - r.avg)
	}
	r.last = stretch{r.bytes, took}
	r.since, r.bytes = now, 0
}
