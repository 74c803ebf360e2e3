package tcp

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/plan"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// TestCrowd: a daemon that is kept on one CPU has one stream spin, on however large a machine.
func TestCrowd(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := sys.ThreadCPUs()
	if err != nil {
		t.Fatal(err)
	}
	one, err := sys.ParseCPUs(strings.FieldsFunc(all.String(), func(r rune) bool { return r == ',' || r == '-' })[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cpus sys.CPUs
		spin int64
	}{{one, 1}, {all, max(int64(all.Count()/2), 1)}} {
		if err := sys.SetThreadCPUs(c.cpus); err != nil {
			t.Fatal(err)
		}
		tr := New(Config{Sink: transporttest.NewRecorder()})
		tr.crowd.streaming.Add(c.spin)
		few := tr.crowd.crowded()
		tr.crowd.streaming.Add(1)
		if few || !tr.crowd.crowded() {
			t.Errorf("on CPUs %s: crowded by %d: %t, by one more: %t", c.cpus, c.spin, few, tr.crowd.crowded())
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}

// crowdSeen is a source that notes how many sockets move data when it is asked for.
type crowdSeen struct {
	transport.Memory
	tr   *Transport
	seen []int64
}

func (s *crowdSeen) Src(r plan.Run) ([]byte, bool) {
	s.seen = append(s.seen, s.tr.crowd.streaming.Load())
	return s.Memory.Src(r)
}

// TestAllStreamsAreOfTheCrowd: a stream counts as one that moves data whichever way its blocks take, as long as it does.
func TestAllStreamsAreOfTheCrowd(t *testing.T) {
	for name, staged := range map[string]int{"direct": -1, "staged": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			sink := transporttest.NewRecorder()
			tr := New(Config{Sink: sink, CRC: CRCOff, Staged: staged})
			s := newOutflow(t, 1, 4<<10, 2)
			mem := &crowdSeen{Memory: s.mem, tr: tr}
			for i := range 2 {
				tr.Post(transport.Job{Key: s.key(i), Plan: s.shape.Plan, Mem: mem})
			}
			near, far := connect(t)
			defer far.Close()
			tr.LinkUp(linkOf(near, epoch, 0))
			for i := range 2 {
				sink.Sent(t, s.key(i))
			}
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
			if mem.seen[0] != 0 || mem.seen[1] != 1 {
				t.Errorf("before each of two slices that are sent, %d sockets move data", mem.seen)
			}

			p := newRawPeer(t, Config{Staged: staged})
			in := p.expect(1, 512<<10, 1)
			f := in.frame(0, 0)
			count := func(want int64, when string) {
				t.Helper()
				for until := time.Now().Add(time.Minute); p.tr.crowd.streaming.Load() != want; runtime.Gosched() {
					if time.Now().After(until) {
						t.Fatalf("%s, %d sockets move data, want %d", when, p.tr.crowd.streaming.Load(), want)
					}
				}
			}
			p.write(f[:headerSize+100<<10])
			count(1, "within a slice that is received")
			p.write(f[headerSize+100<<10:])
			p.wantLanded(in.key(0, 0), transfer.OK)
			count(0, "after it")
		})
	}
}
