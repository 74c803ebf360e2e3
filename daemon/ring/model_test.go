package ring

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestSubmissionModel drives both ends of the submission queue against a slice.
func TestSubmissionModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newPair(t, small)
		type sent struct {
			e   SQE
			rec []byte
		}
		var queue []sent
		held := 0
		next := uint64(1)
		r.Repeat(map[string]func(*rapid.T){
			"submit": func(r *rapid.T) {
				rec := rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(r, "record")
				e := SQE{Op: 1, UserData: next}
				wake, err := p.client.Submit(e, rec)
				if errors.Is(err, ErrBusy) {
					if len(queue) < 8 && held+len(rec) < 4096/2-8 {
						r.Fatalf("busy with %d entries and %d bytes", len(queue), held)
					}
					return
				}
				if err != nil || wake {
					r.Fatalf("submit: %v, wake %v", err, wake)
				}
				next++
				held += len(rec) + 7
				queue = append(queue, sent{e, rec})
			},
			"consume": func(r *rapid.T) {
				var e SQE
				ok, err := p.sq.Next(&e)
				if err != nil || ok != (len(queue) > 0) || p.sq.Pending() != ok {
					r.Fatalf("next: %v %v, %d are queued", ok, err, len(queue))
				}
				if !ok {
					return
				}
				rec, err := p.sq.Record(nil, e.RecOff, e.RecLen)
				if err != nil || e.UserData != queue[0].e.UserData || !bytes.Equal(rec, queue[0].rec) {
					r.Fatalf("entry %+v, record of %d, %v; want %d, %d", e, len(rec), err, queue[0].e.UserData, len(queue[0].rec))
				}
				p.sq.Advance()
				held -= len(queue[0].rec) + 7
				queue = queue[1:]
			},
		})
	})
}

// TestCompletionModel drives both ends of the completion queue against a slice, with results of all sizes up to what there is
// room for.
func TestCompletionModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newPair(t, small)
		type sent struct {
			e      CQE
			result []byte
			mark   bool
		}
		var queue, consumed []sent
		next := uint64(1)
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				room := p.cq.Room()
				full := len(queue)+len(consumed) == 8
				if full != (room == 0) || !full && room < MinResult {
					r.Fatalf("room for %d bytes with %d outstanding", room, len(queue)+len(consumed))
				}
				n := 0
				switch rapid.IntRange(0, 2).Draw(r, "size") {
				case 1:
					n = rapid.IntRange(0, min(room, MinResult)).Draw(r, "bytes")
				case 2:
					n = rapid.IntRange(0, room).Draw(r, "bytes")
				}
				s := sent{CQE{UserData: next}, bytes.Repeat([]byte{byte(next)}, n), next%3 == 0}
				err := p.cq.Put(&s.e, s.result, s.mark)
				if full {
					if !errors.Is(err, ErrFull) {
						r.Fatalf("put into a full queue: %v", err)
					}
					return
				}
				if err != nil {
					r.Fatalf("put: %v", err)
				}
				next++
				queue = append(queue, s)
			},
			"take": func(r *rapid.T) {
				e, result, ok := p.client.Next()
				if ok != (len(queue) > 0) {
					r.Fatalf("next: %v, %d are queued", ok, len(queue))
				}
				if !ok {
					return
				}
				if e != queue[0].e || !bytes.Equal(result, queue[0].result) || e.ResultLen > 0 && e.ResultOff%8 != 0 {
					r.Fatalf("completion %+v with %d bytes, want %+v with %d", e, len(result), queue[0].e, len(queue[0].result))
				}
				consumed, queue = append(consumed, queue[0]), queue[1:]
			},
			"collect": func(r *rapid.T) {
				marked, others, err := p.cq.Consumed()
				want := [2]int{}
				for _, s := range consumed {
					if s.mark {
						want[0]++
					} else {
						want[1]++
					}
				}
				if err != nil || [2]int{marked, others} != want || int(p.cq.Outstanding()) != len(queue) {
					r.Fatalf("consumed %d and %d, %v; want %v; outstanding %d of %d", marked, others, err, want, p.cq.Outstanding(), len(queue))
				}
				consumed = nil
			},
		})
	})
}

// TestTinyResultsLendNothing: what results smaller than MinResult left unused does not go to a larger one after them, for their
// entries are free again before it is.
func TestTinyResultsLendNothing(t *testing.T) {
	for _, tiny := range []int{0, 1, MinResult - 8} {
		p := newPair(t, small)
		for turn := range 200 {
			for range 7 {
				noErr(t, p.cq.Put(&CQE{}, make([]byte, tiny), false))
			}
			noErr(t, p.cq.Put(&CQE{}, make([]byte, p.cq.Room()), false))
			for range 7 {
				p.client.Next()
			}
			_, _, err := p.cq.Consumed()
			noErr(t, err)
			for n := range 7 {
				if room := p.cq.Room(); room < MinResult {
					t.Fatalf("tiny %d, turn %d: room for %d bytes with %d outstanding", tiny, turn, room, n+1)
				}
				noErr(t, p.cq.Put(&CQE{}, make([]byte, MinResult), false))
			}
			for range 8 {
				p.client.Next()
			}
			_, _, err = p.cq.Consumed()
			noErr(t, err)
		}
	}
}

// TestSmallResultsAlwaysFit fills the queue with the smallest promise after the largest results, wherever the area stands.
func TestSmallResultsAlwaysFit(t *testing.T) {
	p := newPair(t, small)
	for turn := range 500 {
		n, free := 0, 8-int(p.cq.Outstanding())
		for ; p.cq.Room() > 0; n++ {
			size := MinResult
			if n < turn%4 {
				size = p.cq.Room()
			}
			noErr(t, p.cq.Put(&CQE{}, make([]byte, size-turn%7), false))
		}
		if n != free {
			t.Fatalf("turn %d: %d completions fit, want %d", turn, n, free)
		}
		for range 1 + turn%8 {
			p.client.Next()
		}
		_, _, err := p.cq.Consumed()
		noErr(t, err)
	}
}
