package tcp

import "time"

// rate is a moving average of how fast a channel moves bytes one way while there is something to move, in bytes per second.
type rate struct {
	avg   float64
	bytes int
	since time.Time // zero: nothing to move
	last  stretch   // the sample before, since there was something to move
}

type stretch struct {
	bytes int
	took  time.Duration
}

const (
	// sampleTime is how long a sample takes; shorter ones measure the socket's buffer.
	sampleTime = 10 * time.Millisecond
	// sampleBytes is the least that a sample cut short by a pause is made of.
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

// pause ends a sample early. It takes the one before in: links count what they moved when they have moved it, so that what is
// counted in a short time may have been moved in a longer one.
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
