package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

const (
	benchPatience = 10 * time.Second // for the answer of a peer
	benchMost     = 100_000          // most hand-overs of a row
)

// measuring is the measurement of one row.
type measuring struct {
	b     *bencher
	x     *benchSession
	peer  string // "": this node
	spec  benchSpec
	token []byte
	src   []layout.BlockList // only within this node
	dst   []layout.BlockList
	user  uint64
	offer int
}

// meet opens the channel to a peer and asks whether it takes part.
func (b *bencher) meet(ctx context.Context, peer string) error {
	if peer == "" {
		return nil
	}
	x, err := b.open(benchSpec{size: 4096, blocks: 1}, 1, true)
	if err != nil {
		return err
	}
	defer b.close(x)
	m := &measuring{b: b, x: x, peer: peer, token: newToken()}
	err = m.watch(ctx, benchHello)
	switch {
	case err == nil:
		return nil
	case b.draining(): // or stops, and refuses by itself
		return &admin.Failure{Code: http.StatusServiceUnavailable, Message: err.Error()}
	}
	return &admin.Failure{Code: http.StatusBadGateway, Message: aboutPeer(peer, err), Hint: "\"kvpipectl explain " + peer + "\" says more about the peer"}
}

// aboutPeer returns the error's text, with the peer's name in front unless it begins with that.
func aboutPeer(peer string, err error) string {
	name, text := fmt.Sprintf("peer %q", peer), err.Error()
	if strings.HasPrefix(text, name) {
		return text
	}
	return name + ": " + text
}

func newToken() []byte {
	var t [16]byte
	_, _ = rand.Read(t[:]) // never fails
	return t[:]
}

// measure takes blocks from the peer again and again, for that many seconds.
func (b *bencher) measure(ctx context.Context, peer string, s benchSpec, seconds float64) (row admin.BenchRow, err error) {
	s.name = random()
	n := s.blocks
	if peer == "" {
		n *= 2 // the source too
	}
	x, err := b.open(s, n, true)
	if err != nil {
		return row, err
	}
	defer b.close(x)
	m := &measuring{b: b, x: x, peer: peer, spec: s, token: newToken(), dst: shuffled(0, s.blocks)}
	if peer == "" {
		m.src = shuffled(s.blocks, s.blocks)
	} else {
		defer m.drop()
	}
	if _, err := m.handOver(ctx); err != nil { // not counted: it maps pages and opens links
		return row, err
	}
	var times []time.Duration
	total := time.Duration(0)
	for until := time.Now().Add(time.Duration(seconds * float64(time.Second))); len(times) == 0 || len(times) < benchMost && time.Now().Before(until); {
		d, err := m.handOver(ctx)
		if err != nil {
			return row, err
		}
		times = append(times, d)
		total += d
	}
	slices.Sort(times)
	return admin.BenchRow{
		Transport: s.transport, Bytes: s.size, Blocks: s.blocks, Count: len(times),
		GBps: float64(s.bytes()) * float64(len(times)) / float64(max(total.Nanoseconds(), 1)),
		P50:  quantile(times, 0.5).Seconds(), P99: quantile(times, 0.99).Seconds(),
	}, nil
}

// quantile returns the smallest element of sorted that at least q of all do not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// handOver has blocks offered, takes them, and returns how long the take took.
func (m *measuring) handOver(ctx context.Context) (time.Duration, error) {
	m.offer++
	key := m.spec.offerKey(m.offer)
	if m.peer == "" {
		m.submit(&transfer.OfferOp{Key: []byte(key), Token: m.token, Lease: transfer.Time(m.b.lease), Consumers: 1, Sealed: true, Blocks: m.src})
	} else if err := m.watch(ctx, key); err != nil {
		return 0, err
	}
	began := time.Now()
	user := m.submit(&transfer.TakeOp{
		Key: []byte(key), Token: m.token, Peer: m.peer, TakeID: uint64(m.offer), Parts: 1, LayerSlot: transfer.NoSlot,
		Timeout: transfer.Time(m.b.patience()), Blocks: m.dst,
	})
	end, err := m.await(ctx, user)
	return end.at.Sub(began), err
}

// patience is how long a hand-over may take. It is less than the peer's lease: one that takes longer then ends with how far
// it came, not with a peer that has forgotten the measurement.
func (b *bencher) patience() time.Duration { return b.lease - b.lease/5 }

// watch asks the peer for something and waits for its answer.
func (m *measuring) watch(ctx context.Context, key string) error {
	_, err := m.await(ctx, m.submit(&transfer.WatchOp{Key: []byte(key), Token: m.token, Peer: m.peer, Timeout: transfer.Time(benchPatience)}))
	return err
}

// drop tells the peer that the measurement is over. If that is lost, the peer's lease ends it.
func (m *measuring) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = m.await(ctx, m.submit(&transfer.DropOp{Key: []byte(m.spec.key()), Token: m.token, Peer: m.peer, Timeout: transfer.Time(time.Second)}))
}

func (m *measuring) submit(op transfer.Op) (user uint64) {
	m.user++
	m.b.to.Queue(transfer.Submit{Session: m.x.id, UserData: m.user, Op: op})
	m.b.to.Flush()
	return m.user
}

// await returns how an operation ended, once its memory may be used again. It skips the ends of offers.
func (m *measuring) await(ctx context.Context, user uint64) (end result, err error) {
	for seen := false; ; {
		select {
		case r := <-m.x.results:
			if r.UserData != user {
				continue
			}
			if !seen {
				seen, end = true, r
			}
			if r.More || r.Status == transfer.Quarantined {
				continue
			}
			if end.Status != transfer.Done {
				return end, errors.New(end.Text)
			}
			return end, nil
		case <-ctx.Done():
			return end, context.Cause(ctx)
		}
	}
}
