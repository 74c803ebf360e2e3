package session

import (
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestOneOwnerIsOneUser: only a cgroup has several names, so another user's engine is another owner's in whatever place.
func TestOneOwnerIsOneUser(t *testing.T) {
	const was = "uid 1000" + ownerGroup + "/../pod/c"
	for now, want := range map[string]bool{
		"uid 1000" + ownerGroup + "/../../burst/pod/c": true,
		"uid 1001" + ownerGroup + "/../../burst/pod/c": false,
		"uid 1000, not visible":                        false,
		"":                                             false,
	} {
		if oneOwner(was, now) != want || oneOwner(now, was) != want {
			t.Errorf("%q and %q: one owner is %v", was, now, !want)
		}
	}
}

// TestResultsFit: however much has failed and however much there is to say, it stays within the room for it.
func TestResultsFit(t *testing.T) {
	for _, room := range []int{ring.MinResult, ring.MinResult + 1, 4096, 1 << 16} {
		for _, n := range []int{0, 1, 20, layout.MaxGroups, 4 * layout.MaxGroups, ring.MaxFailed + 1} {
			failed := make([]layout.Run, n)
			for i := range failed {
				failed[i] = layout.Run{Group: uint32(i % layout.MaxGroups), First: uint32(i), Count: 1}
			}
			for _, text := range []int{0, 100, 4096, 1 << 16} {
				if got := len(appendResult(nil, failed, strings.Repeat("x", text), room)); got > room {
					t.Errorf("%d runs and a text of %d bytes take %d bytes, there is room for %d", n, text, got, room)
				}
			}
		}
	}
}

// TestARemovalIsAnsweredOnce: its time does not run out any more once it is answered, asked for anew, or under way.
func TestARemovalIsAnsweredOnce(t *testing.T) {
	const id, seq = layout.RegionID(1), 7
	for what, r := range map[string]*removal{
		"answered":  {seq: seq},
		"anew":      {seq: seq + 1, waiting: true},
		"under way": {seq: seq, waiting: true, drained: true},
	} {
		s := &session{removals: map[layout.RegionID]*removal{id: r}} // without a connection to answer on
		before := *r
		s.removalTimedOut(id, r, seq, time.Second)
		if *r != before {
			t.Errorf("%s: %+v, was %+v", what, *r, before)
		}
	}
	s := &session{removals: map[layout.RegionID]*removal{id: {seq: seq, waiting: true}}}
	s.removalTimedOut(id, &removal{seq: seq, waiting: true}, seq, time.Second)
	if !s.removals[id].waiting {
		t.Error("another removal ran out of time")
	}
}

// TestARingThatIsUnmappedIsNotRead: a worker may come for a rank while its scheduler's session ends.
func TestARingThatIsUnmappedIsNotRead(t *testing.T) {
	s := new(session) // without a ring
	s.outdated.unmapped()
	s.outdate()
	if s.outdated.has(0) {
		t.Error("something in it counts as submitted before")
	}
}

// TestSubmissionsWaitForRoom: whatever is submitted can be answered, so completions that nobody has taken and operations
// that run count together.
func TestSubmissionsWaitForRoom(t *testing.T) {
	const reserve = 6
	g, err := ring.NewGeometry(ring.Sizes{SQ: 8, CQ: 8, Records: 1 << 16, Layers: 1})
	if err != nil {
		t.Fatal(err)
	}
	for outstanding := range reserve + 1 {
		for running := range reserve + 1 {
			s := &session{srv: new(Server), reserve: reserve, cq: ring.NewCompletions(&g, make([]byte, g.CBytes), make([]byte, g.DBytes))}
			for range outstanding {
				if err := s.cq.Put(&ring.CQE{UserData: 1}, nil, true); err != nil {
					t.Fatal(err)
				}
			}
			s.open[large], s.open[small] = running/2, running-running/2
			if got, want := s.admissible(), outstanding+running < reserve; got != want {
				t.Errorf("%d completions and %d operations, of %d: admissible is %v", outstanding, running, reserve, got)
			}
		}
	}
}

// TestAnEndpointIsOneRank, whatever it says of a world: it has no layout that would be split.
func TestAnEndpointIsOneRank(t *testing.T) {
	id := identity{Role: transfer.Endpoint}
	if err := id.setRank(&ring.Hello{TPRank: 1, PPRank: 1, TPWorld: 4, PPWorld: 2}); err != nil || id.Rank != 0 || id.TPWorld != 1 || id.PPWorld != 1 {
		t.Errorf("rank %d of %d x %d, %v", id.Rank, id.TPWorld, id.PPWorld, err)
	}
}
