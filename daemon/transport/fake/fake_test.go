package fake

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

const epoch = 3

func open(faults Faults, brief bool) transporttest.Open {
	return func(t testing.TB) *transporttest.Pair {
		src, dst := transporttest.NewRecorder(), transporttest.NewRecorder()
		n := New(1, faults)
		a, b := n.Node("a", src), n.Node("b", dst)
		n.Start()
		return &transporttest.Pair{
			Src: a, Dst: b, SrcSink: src, DstSink: dst, SrcPeer: "b", DstPeer: "a", Epoch: epoch, Brief: brief,
			KillLinks: func() int { n.Lose("a", "b", epoch); return 1 },
			Down:      func() { n.Down("a", "b", epoch) },
			Close: sync.OnceFunc(func() {
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				n.Stop()
			}),
		}
	}
}

// broken is set in the environment of a child that runs the suite against a transport without fences.
const broken = "KVPIPE_FAKE_TEST_BROKEN"

func TestConformance(t *testing.T) {
	faults := Faults{}
	if os.Getenv(broken) != "" {
		faults = Faults{LateLanding: true, Delay: 0.5}
	}
	t.Run("faultless", func(t *testing.T) { transporttest.Run(t, open(faults, false)) })
	t.Run("late and doubled", func(t *testing.T) { transporttest.Run(t, open(Faults{Delay: 0.3, Duplicate: 0.3}, true)) })
	t.Run("fences that fail first", func(t *testing.T) { transporttest.Run(t, open(Faults{FenceFail: 0.5, Delay: 0.1}, true)) })
}

// TestSuiteNotices: the suite fails for a transport that keeps no fence. The test of the test.
func TestSuiteNotices(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestConformance$/^faultless$/reused_after_a_consumer")
	cmd.Env = append(os.Environ(), broken+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "bytes landed after the fence") {
		t.Errorf("the suite did not notice (%v):\n%s", err, out)
	}
}

// trace notes all that is reported, as text.
type trace struct{ lines []string }

func (r *trace) Event(ev transfer.Event) { r.lines = append(r.lines, fmt.Sprintf("%T %+v", ev, ev)) }

// run moves one transfer step by step and returns what happened.
func run(t *testing.T, seed int64, faults Faults) []string {
	s := transporttest.Blocks(t, 40, 8<<10, 32<<10)
	src, dst := transporttest.NewMemory(t, s.Src...), transporttest.NewMemory(t, s.Dst...)
	var r trace
	n := New(seed, faults)
	a, b := n.Node("a", &r), n.Node("b", &r)
	prod := transfer.Leg{Peer: "b", Epoch: epoch, Xfer: 1, End: transfer.Producer}
	cons := transfer.Leg{Peer: "a", Epoch: epoch, Xfer: 1, End: transfer.Consumer}
	b.Expect(transport.Job{Key: transfer.SliceKey{Leg: cons}, Plan: s.Plan, Mem: dst})
	for i := range s.Plan.Slices() {
		a.Post(transport.Job{Key: transfer.SliceKey{Leg: prod, Slice: uint32(i)}, Plan: s.Plan, Mem: src})
	}
	for range 25 {
		n.Step()
	}
	b.Fence(cons)
	a.Fence(prod)
	for n.Step() {
	}
	return r.lines
}

// TestSeed: the same seed gives the same run, another one another.
func TestSeed(t *testing.T) {
	faults := Faults{Drop: 0.2, Delay: 0.2, Duplicate: 0.2, Corrupt: 0.2, FenceFail: 0.5}
	first := strings.Join(run(t, 1, faults), "\n")
	if again := strings.Join(run(t, 1, faults), "\n"); again != first {
		t.Errorf("seed 1 gave\n%s\nand then\n%s", first, again)
	}
	if other := strings.Join(run(t, 2, faults), "\n"); other == first {
		t.Error("seeds 1 and 2 gave the same run")
	}
}

// TestFaults: each fault happens when it is certain, and shows as it should.
func TestFaults(t *testing.T) {
	ok := fmt.Sprintf("%+v", transfer.Cause{})
	for _, c := range []struct {
		faults    Faults
		want, not string
	}{
		{Faults{Drop: 1}, "LinkLost", "SliceLanded"},
		{Faults{Corrupt: 1}, "corrupted", "Landed {Key:{Leg:{Peer:a Epoch:3 Xfer:1 End:2} Seg:0 Slice:0 Attempt:0} Cause:" + ok},
		{Faults{FenceFail: 1}, "the fence failed", ""},
	} {
		got := strings.Join(run(t, 1, c.faults), "\n")
		if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%+v gave\n%s", c.faults, got)
		}
		if ends := strings.Count(got, "Fenced {Leg:{Peer:a Epoch:3 Xfer:1 End:2} Cause:"+ok); ends != 1 {
			t.Errorf("%+v: the consumer's fence stood %d times", c.faults, ends)
		}
	}
}
