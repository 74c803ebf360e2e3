package transfer_test

import (
	"fmt"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// yard is a machine whose slices end one after the other, in the order in which they were posted.
type yard struct {
	t      *testing.T
	m      *transfer.Machine
	load   map[string]load // by engine
	engine map[transfer.SessionID]string
	of     map[transfer.XferID]string
	flying []transfer.SliceKey
	posted []string                   // engines of slices
	ends   map[transfer.SessionID]int // completions of takes that were moved
	users  uint64
}

// load is how an engine hands over: so many transfers of so many slices of so many bytes each, in pieces of piece bytes (0: whole).
type load struct {
	transfers, slices int
	bytes             uint64
	piece             uint64
}

const yardWindow = 8

// The yard's sessions. "decode" takes from the others and collects its completions; "deaf" has room for a few, and never collects.
const (
	decode transfer.SessionID = iota + 1
	busy
	small
	deaf
)

const deafCredits = 10

// newYard opens the sessions.
func newYard(t *testing.T, engines map[string]load) *yard { return newYardOf(t, 1<<40, engines) }

// newYardOf has a window of so many bytes.
func newYardOf(t *testing.T, window uint64, engines map[string]load) *yard {
	n := uint64(0)
	y := &yard{t: t, load: engines, engine: map[transfer.SessionID]string{}, of: map[transfer.XferID]string{}, ends: map[transfer.SessionID]int{}}
	y.m = transfer.New(transfer.Config{Node: "a", WindowSlices: yardWindow, WindowBytes: window, Random: func() uint64 { n++; return n }})
	l := oneRank(t)
	for i, name := range []string{"decode", "busy", "small", "deaf"} {
		id := transfer.SessionID(i + 1)
		y.engine[id] = name
		credits := 10000
		if id == deaf {
			credits = deafCredits
		}
		y.m.Step(1, transfer.SessionOpened{Session: id, Engine: name, Role: transfer.Worker, Credits: credits})
		y.m.Step(1, transfer.LayoutSet{Session: id, Layout: l})
	}
	return y
}

func (y *yard) step(ev transfer.Event) {
	var answers []transfer.Event
	for _, e := range y.m.Step(1, ev) {
		switch e := e.(type) {
		case transfer.MakePlan:
			name := y.engine[e.Producer[0].Session]
			y.of[e.Leg.Xfer] = name
			n := y.load[name]
			bytes := uint64(n.slices) * n.bytes
			pieces := uint64(n.slices)
			if n.piece > 0 {
				pieces = bytes / n.piece
			}
			answers = append(answers, transfer.Planned{Leg: e.Leg, Seg: e.Seg, Transport: "local", Slices: uint32(n.slices), Bytes: bytes, Pieces: pieces})
		case transfer.Post:
			for _, k := range e.Keys {
				y.flying = append(y.flying, k)
				y.posted = append(y.posted, y.of[k.Xfer])
			}
			if len(y.flying) > yardWindow {
				y.t.Fatalf("%d slices are posted, the window is %d", len(y.flying), yardWindow)
			}
		case transfer.Complete:
			if e.Kind == transfer.KindTake && e.Status == transfer.Done {
				y.ends[e.Session]++
			}
		case transfer.Fence:
			answers = append(answers, transfer.Fenced{Leg: e.Leg})
		}
	}
	for _, a := range answers {
		y.step(a)
	}
}

// begin has an engine offer, and another one take, all that its load says.
func (y *yard) begin(by, taker transfer.SessionID) {
	name := y.engine[by]
	for i := range y.load[name].transfers {
		y.users++
		key, token := fmt.Appendf(nil, "%s %d", name, i), []byte("0123456789abcdef")
		src := []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(i)}}}
		dst := []layout.BlockList{{NTokens: 1, IDs: []uint32{uint32(y.users)}}}
		y.step(transfer.Submit{Session: by, UserData: y.users, Op: &transfer.OfferOp{Key: key, Token: token, Sealed: true, Blocks: src}})
		y.step(transfer.Submit{Session: taker, UserData: y.users, Op: &transfer.TakeOp{Key: key, Token: token, TakeID: y.users, LayerSlot: transfer.NoSlot, Blocks: dst}})
	}
}

// land ends slices until none is posted any more.
func (y *yard) land() {
	for len(y.flying) > 0 {
		y.landOne()
	}
}

func (y *yard) landOne() {
	k := y.flying[0]
	y.flying = y.flying[1:]
	y.step(transfer.SliceSent{Key: k})
	k.End = transfer.Consumer
	y.step(transfer.SliceLanded{Key: k})
}

// all checks that nothing is left.
func (y *yard) all() {
	want := 0
	for _, l := range y.load {
		want += l.transfers * l.slices
	}
	if len(y.posted) != want {
		y.t.Fatalf("%d slices posted, want %d", len(y.posted), want)
	}
}

// besideSmall has the small engine begin as well, and everything handed over. It returns who posted while that one had something to post.
func (y *yard) besideSmall() []string {
	before := len(y.posted)
	y.begin(small, decode)
	y.land()
	y.all()
	last := 0
	for i, name := range y.posted {
		if name == "small" {
			last = i
		}
	}
	return y.posted[before : last+1]
}

// TestFairness: whatever one engine has to hand over, another one that comes later has its half of the link from then on, as long
// as it has something to hand over. The share counts in bytes.
func TestFairness(t *testing.T) {
	for _, tc := range []struct {
		name        string
		busy, small load
	}{
		{"a long and a short one", load{1, 1000, 1 << 20, 0}, load{1, 3, 1 << 20, 0}},
		{"many transfers and one", load{40, 100, 1 << 20, 0}, load{1, 200, 1 << 20, 0}},
		{"large slices and small ones", load{1, 1000, 1 << 20, 0}, load{1, 2000, 128 << 10, 0}},
		{"small slices and large ones", load{10, 1000, 128 << 10, 0}, load{2, 100, 1 << 20, 0}},
		{"uneven slices", load{3, 300, 700 << 10, 0}, load{1, 300, 1 << 20, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			y := newYard(t, map[string]load{"busy": tc.busy, "small": tc.small})
			y.begin(busy, decode)
			bytes := map[string]uint64{}
			for _, name := range y.besideSmall() {
				bytes[name] += y.load[name].bytes
			}
			const turn = 1 << 20 // what one engine may be ahead, and the other behind
			if b, s := bytes["busy"], bytes["small"]; b > s+2*turn || s > b+2*turn {
				t.Errorf("while both had something to post, one posted %d bytes and the other %d", b, s)
			}
		})
	}
}

// TestAUserHasOneShare: engines' names are free, so a user may have any number of engines. They share what one user has of a link, evenly, and another
// user has as much with a single engine.
func TestAUserHasOneShare(t *testing.T) {
	const engines, first = 6, transfer.SessionID(10)
	loads := map[string]load{"small": {1, 60, 1 << 20, 0}}
	for i := range engines {
		loads[fmt.Sprint("many ", i)] = load{1, 100, 1 << 20, 0}
	}
	y := newYard(t, loads)
	for i := range engines {
		id := first + transfer.SessionID(i)
		y.engine[id] = fmt.Sprint("many ", i)
		y.m.Step(1, transfer.SessionOpened{Session: id, Engine: y.engine[id], User: 7, Role: transfer.Worker, Credits: 10000})
		y.m.Step(1, transfer.LayoutSet{Session: id, Layout: oneRank(t)})
		y.begin(id, decode)
	}
	posted, count := y.besideSmall(), map[string]int{}
	for _, name := range posted {
		count[name]++
	}
	if len(posted) > 2*60+2 {
		t.Errorf("%d slices were posted while one user had 60 to post: %v", len(posted), count)
	}
	for name, n := range count {
		if want := 60 / engines; name != "small" && (n < want-1 || n > want+1) {
			t.Errorf("%s posted %d, want about %d", name, n, want)
		}
	}
}

// TestTinySlices: they cost more than their bytes, and count for that.
func TestTinySlices(t *testing.T) {
	y := newYard(t, map[string]load{"busy": {40, 100, 512, 0}, "small": {1, 20, 1 << 20, 0}})
	y.begin(busy, decode)
	before := len(y.posted)
	y.begin(small, decode)
	y.land()
	y.all()
	large, between := 0, 0
	for _, name := range y.posted[before:] {
		if between++; name == "small" {
			large, between = large+1, 0
		}
		if large < 20 && between > 32 {
			t.Fatalf("%d tiny slices were posted after large slice %d of 20", between, large)
		}
	}
}

// TestTinyPieces: a slice of single bytes keeps a copier busy for as long as a hundred others. It counts for that, so whoever has such
// slices, however many, is not in everybody's way: a turn of them is as many turns of another engine, and one fills the window.
func TestTinyPieces(t *testing.T) {
	tiny := load{10, 10, 1 << 20, 1}
	y := newYard(t, map[string]load{"busy": tiny, "small": {1, 200, 1 << 20, 0}})
	y.begin(busy, decode)
	before := len(y.posted)
	y.begin(small, decode)
	y.land()
	y.all()
	large, tinies := 0, 0
	for _, name := range y.posted[before:] {
		if name == "small" {
			large++
		} else if large < 200 {
			tinies++
		}
	}
	if tinies > 3 {
		t.Errorf("%d slices of single bytes were posted while another engine posted 200 whole ones", tinies)
	}

	y = newYardOf(t, 32<<20, map[string]load{"busy": tiny})
	y.begin(busy, decode)
	if len(y.posted) != 1 {
		t.Errorf("%d slices of single bytes are posted together, in a window of 32 MiB", len(y.posted))
	}
	y.land()
	y.all()
}

// TestTinyPiecesOneAfterTheOther: what an engine has posted beyond its turn counts, too, if it has nothing more to post just then and comes back
// with another transfer as soon as that has ended.
func TestTinyPiecesOneAfterTheOther(t *testing.T) {
	y := newYard(t, map[string]load{"busy": {1, 1, 1 << 20, 1}, "small": {1, 200, 1 << 20, 0}})
	y.begin(small, decode)
	y.begin(busy, decode)
	large, tinies := 0, 0
	for looked, ended := 0, 0; large < 200; y.landOne() {
		for ; looked < len(y.posted); looked++ {
			if y.posted[looked] == "small" {
				large++
			} else {
				tinies++
			}
		}
		if n := y.ends[decode]; n > ended {
			ended = n
			y.begin(busy, decode)
		}
	}
	y.land()
	if tinies > 3 {
		t.Errorf("%d slices of single bytes were posted while another engine posted 200 whole ones", tinies)
	}
}

// TestTinyPiecesOfOneEngineAfterTheOther: nor is it another user's loss if it is another engine of the same user each time, or each time one that
// nobody has heard of. Engines' names are free.
func TestTinyPiecesOfOneEngineAfterTheOther(t *testing.T) {
	const engines, first = 400, transfer.SessionID(10)
	for _, together := range []int{1, 2, 40} { // engines that have something to post at a time
		loads := map[string]load{"small": {1, 400, 1 << 20, 0}}
		y := newYard(t, loads)
		next := first
		tiny := func() {
			y.engine[next] = fmt.Sprint("tiny ", next)
			loads[y.engine[next]] = load{1, 1, 1 << 20, 1}
			y.m.Step(1, transfer.SessionOpened{Session: next, Engine: y.engine[next], User: 7, Role: transfer.Worker, Credits: 10000})
			y.m.Step(1, transfer.LayoutSet{Session: next, Layout: oneRank(t)})
			y.begin(next, decode)
			next++
		}
		y.begin(small, decode)
		for range together {
			tiny()
		}
		large, tinies := 0, 0
		for looked, ended := 0, 0; large < 400; y.landOne() {
			for ; looked < len(y.posted); looked++ {
				if y.posted[looked] == "small" {
					large++
				} else {
					tinies++
				}
			}
			if n := y.ends[decode]; n > ended && next < first+engines {
				ended = n
				tiny()
			}
		}
		y.land()
		if tinies > 5 {
			t.Errorf("%d at a time: %d slices of single bytes of one user were posted while another user's engine posted 400 whole ones", together, tinies)
		}
	}
}

// TestUsersShareByWeight, and engines what their user has, whatever pieces and slices the engines of each have.
func TestUsersShareByWeight(t *testing.T) {
	const first, turn = transfer.SessionID(10), 1 << 20
	weight := func(l load) uint64 {
		pieces := uint64(1)
		if l.piece > 0 {
			pieces = l.bytes / l.piece
		}
		return max(l.bytes, pieces*128, 64<<10)
	}
	users := [][]load{ // of engines
		{{1, 20, 1 << 20, 1}, {1, 2000, 1 << 20, 0}, {20, 1000, 64 << 10, 0}},
		{{1, 5000, 1 << 20, 0}},
		{{4, 1000, 300 << 10, 0}, {1, 2000, 1 << 20, 16}},
	}
	loads, user := map[string]load{}, map[string]int{}
	y := newYardOf(t, 32<<20, loads) // or who is first fills it
	id := first
	for u, engines := range users {
		for i, l := range engines {
			name := fmt.Sprint("user ", u, " engine ", i)
			y.engine[id], loads[name], user[name] = name, l, u
			y.m.Step(1, transfer.SessionOpened{Session: id, Engine: name, User: uint32(u), Role: transfer.Worker, Credits: 10000})
			y.m.Step(1, transfer.LayoutSet{Session: id, Layout: oneRank(t)})
			id++
		}
	}
	for s := first; s < id; s++ {
		y.begin(s, decode)
	}
	had, of := map[string]uint64{}, map[int]uint64{}
	for range 9000 {
		y.landOne()
	}
	most := uint64(0) // of one slice
	for _, name := range y.posted {
		w := weight(loads[name])
		had[name], of[user[name]], most = had[name]+w, of[user[name]]+w, max(most, w)
	}
	for u, engines := range users {
		if of[u]+most+8*turn < of[1] || of[u] > of[1]+most+8*turn {
			t.Errorf("user %d had %d bytes, and user 1 %d", u, of[u], of[1])
		}
		for i := range engines {
			name := fmt.Sprint("user ", u, " engine ", i)
			if share := of[u] / uint64(len(engines)); had[name]+most+8*turn < share || had[name] > share+most+8*turn {
				t.Errorf("%s had %d bytes of its user's %d", name, had[name], of[u])
			}
		}
	}
}

// TestDeafConsumer: one that never collects its completions takes as much as it has room to be told of, and that is all that others
// notice of it: from then on every slice that is posted is theirs.
func TestDeafConsumer(t *testing.T) {
	const each = 10
	y := newYard(t, map[string]load{"busy": {40, each, 1 << 20, 0}, "small": {10, 20, 1 << 20, 0}})
	y.begin(busy, deaf)
	y.begin(small, decode)
	y.land()
	n := map[string]int{}
	last := 0
	for i, name := range y.posted {
		if n[name]++; name == "busy" {
			last = i
		}
	}
	if takes := deafCredits / 3; n["busy"] != takes*each || y.ends[deaf] != takes {
		t.Errorf("%d slices were posted and %d takes done for who collects nothing; its room is for %d takes of %d slices", n["busy"], y.ends[deaf], takes, each)
	}
	if n["small"] != 200 || y.ends[decode] != 10 {
		t.Errorf("%d slices were posted and %d takes done for the other one; must be 200 and 10", n["small"], y.ends[decode])
	}
	if fair := 2*n["busy"] + yardWindow; last >= fair {
		t.Errorf("its last slice was posted as number %d; with every other one its own it is below %d", last, fair)
	}
}

// TestAFenceGivesTheLaneBack: what it ended without a word of each slice keeps nothing from the next take.
func TestAFenceGivesTheLaneBack(t *testing.T) {
	b := offered(t, 1)
	post := func(x transfer.XferID) (posted int) {
		b.asksFor(x, "f", "1", uint64(x), 0, 1)
		b.begins(x)
		leg := transfer.Leg{Peer: "b", Epoch: 1, Xfer: x, End: transfer.Producer}
		b.step(transfer.Planned{Leg: leg, Slices: 10000, Bytes: 10000 << 20, Transport: "tcp"})
		for _, e := range b.m.Step(b.now, transfer.PeerMsg{Node: "b", Epoch: 1, Msg: &transfer.MsgGo{Xfer: x}}) {
			if p, ok := e.(transfer.Post); ok {
				posted += len(p.Keys)
			}
		}
		b.fails(x)
		b.step(transfer.Fenced{Leg: leg})
		return posted
	}
	first := post(1)
	if next := post(2); first == 0 || next != first {
		t.Errorf("%d slices of the first take are posted, and %d of the next", first, next)
	}
}
