package peer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// counted counts the writes to a connection, and fails them once broken.
type counted struct {
	net.Conn
	writes atomic.Int64
	broken atomic.Bool
}

var errBroken = errors.New("broken")

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.broken.Load() {
		return 0, errBroken
	}
	return c.Conn.Write(p)
}

// corkedPair returns both ends of an encrypted connection, and what is below the first.
func corkedPair(t *testing.T) (a, b *corked, below *counted) {
	t.Helper()
	cl := newCluster(t)
	x, y := net.Pipe()
	below = &counted{Conn: x}
	a = newCorked(below, true, cl.identity("a").Config(alpnData))
	b = newCorked(y, false, cl.identity("b").Config(alpnData))
	shaken := make(chan error, 1)
	go func() { shaken <- b.Handshake() }()
	if err := errors.Join(a.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close(); _ = y.Close() })
	return a, b, below
}

// TestCorkedWrites: what one Write gives is one write to the kernel, however many records it makes; a long one is written in parts.
func TestCorkedWrites(t *testing.T) {
	a, b, below := corkedPair(t)
	for _, c := range []struct{ size, least, most int64 }{{1, 1, 1}, {16 << 10, 1, 1}, {65 << 10, 1, 1}, {1 << 20, 2, 1<<20/keptMost + 1}} {
		want := bytes.Repeat([]byte{byte(c.size), 7, 3}, int(c.size))[:c.size]
		read := make(chan []byte, 1)
		go func() {
			got := make([]byte, c.size)
			_, _ = io.ReadFull(b, got)
			read <- got
		}()
		before := below.writes.Load()
		if n, err := a.Write(want); n != len(want) || err != nil {
			t.Fatalf("%d bytes: %d written, %v", c.size, n, err)
		}
		if !bytes.Equal(<-read, want) {
			t.Fatalf("%d bytes: others came", c.size)
		}
		if n := below.writes.Load() - before; n < c.least || n > c.most {
			t.Errorf("%d bytes: %d writes, want %d to %d", c.size, n, c.least, c.most)
		}
	}
}

// TestCorkedTogether: records of several writers come whole and in the order in which they were encrypted, or the other end could not
// decrypt them.
func TestCorkedTogether(t *testing.T) {
	a, b, _ := corkedPair(t)
	const writers, each, size = 4, 50, 3000
	var done sync.WaitGroup
	for i := range writers {
		done.Go(func() {
			for range each {
				if _, err := a.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var counts [writers]int
	got := make([]byte, size)
	for range writers * each {
		if _, err := io.ReadFull(b, got); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(got, got[:1]); n != size {
			t.Fatalf("a message of writer %d has %d bytes of others", got[0], size-n)
		}
		counts[got[0]]++
	}
	done.Wait()
	if want := [writers]int{each, each, each, each}; counts != want {
		t.Errorf("messages of each writer: %v, want %v", counts, want)
	}
}

// TestCorkedBroken: a write that the kernel refuses is an error of that Write, and of each after it.
func TestCorkedBroken(t *testing.T) {
	a, _, below := corkedPair(t)
	below.broken.Store(true)
	for range 2 {
		if n, err := a.Write(make([]byte, 40<<10)); n != 0 || !errors.Is(err, errBroken) {
			t.Errorf("%d written, %v, want 0 and %v", n, err, errBroken)
		}
	}
}
