package layout

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawView draws a small view, often one that lies beside or over others.
func drawView(t *rapid.T, layer uint32) View {
	few := func(what string, from, to int) uint64 { return uint64(rapid.IntRange(from, to).Draw(t, what)) }
	v := View{Region: RegionID(few("region", 1, 2)), Base: few("base", 0, 40), NumBlocks: few("blocks", 1, 4), Layer: layer, Kind: Paged,
		Group: uint32(few("group", 0, 2)), BlockSize: uint32(few("block size", 1, 3)), Heads: uint32(few("heads", 1, 3)), TotalHeads: 3, Part: "kv",
		ContentBytes: few("content", 1, 3)}
	at := v.ContentBytes
	for _, d := range rapid.Permutation([]string{"block", "token", "head"}).Draw(t, "order") {
		at += few("pad", 0, 3) * few("pads", 0, 2)
		switch d {
		case "block":
			v.BlockStride = at
			at *= v.NumBlocks
		case "token":
			v.TokenStride = at
			at *= uint64(v.BlockSize)
		case "head":
			v.HeadStride = at
			at *= uint64(v.Heads)
		}
	}
	return v
}

// TestDomainsKnowAllSharedBytes looks at every byte of the layouts that New accepts.
func TestDomainsKnowAllSharedBytes(t *testing.T) {
	accepted, joined := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var views []View
		for i := range rapid.IntRange(1, 3).Draw(t, "views") {
			v := drawView(t, uint32(i))
			if i > 0 && rapid.Bool().Draw(t, "same strides") {
				base := views[0].Base + v.Base%4
				group := v.Group
				v = views[0]
				v.Base, v.Layer, v.Group = base, uint32(i), group
			}
			views = append(views, v)
		}
		l, err := New(views, nil, nil)
		if err != nil {
			return
		}
		accepted++
		if len(l.domains) < len(l.groups) {
			joined++
		}
		checkBytes(t, l)
	})
	if accepted == 0 || joined == 0 {
		t.Errorf("%d layouts accepted, %d with groups over each other: the test says nothing", accepted, joined)
	}
}

type claim struct {
	view          int
	block         uint64
	token, head   uint32
	domain, group int
}

func checkBytes(t *rapid.T, l *Layout) {
	type place struct {
		region RegionID
		off    uint64
	}
	claims := map[place][]claim{}
	for i, v := range l.Views() {
		for b := range v.NumBlocks {
			for token := range v.BlockSize {
				for h := range v.Heads {
					off := v.Base + b*v.BlockStride + uint64(token)*v.TokenStride + uint64(h)*v.HeadStride
					for k := range v.ContentBytes {
						p := place{v.Region, off + k}
						me := claim{i, b, token, h, l.Group(v.Group).domain, int(v.Group)}
						for _, other := range claims[p] {
							switch {
							case other.view == i:
								t.Fatalf("byte %v belongs to two elements of view %d: %+v and %+v", p, i, other, me)
							case other.block != b || other.domain != me.domain:
								t.Fatalf("byte %v belongs to %+v and %+v, which no table of holds connects; views %+v", p, other, me, l.Views())
							}
						}
						claims[p] = append(claims[p], me)
					}
				}
			}
		}
	}
}

// TestNoElementIsTorn: of two views of a group that have the same shape, no element overlaps one of the other, unless they begin at the same
// byte. Nothing else is refused for that, and nothing that a peer has accepted.
func TestNoElementIsTorn(t *testing.T) {
	torn, whole := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t, 0)
		w := v
		w.Layer, w.Base = 1, v.Base+uint64(rapid.IntRange(1, 40).Draw(t, "shift"))
		_, err := New([]View{v, w}, nil, func(RegionID) (uint64, bool) { return 1 << 20, true })
		_, far := New([]View{v, w}, nil, nil)
		refused := err != nil && strings.Contains(err.Error(), "overlap within a block")
		switch overlap := elementsMeet(&v, &w); {
		case far != nil: // for blocks that are not the same
			return
		case overlap && refused:
			torn++
		case overlap || err != nil:
			t.Fatalf("overlap %v, error %v; views %+v", overlap, err, []View{v, w})
		default:
			whole++
		}
	})
	if torn == 0 || whole == 0 {
		t.Errorf("%d layouts refused, %d accepted: the test says nothing", torn, whole)
	}
}

// elementsMeet compares every element of one view with every element of the other.
func elementsMeet(v, w *View) bool {
	offsets := func(v *View) (out []uint64) {
		for b := range v.NumBlocks {
			for t := range uint64(v.BlockSize) {
				for h := range uint64(v.Heads) {
					out = append(out, v.Base+b*v.BlockStride+t*v.TokenStride+h*v.HeadStride)
				}
			}
		}
		return out
	}
	for _, a := range offsets(v) {
		for _, b := range offsets(w) {
			if a < b+w.ContentBytes && b < a+v.ContentBytes {
				return true
			}
		}
	}
	return false
}

// TestTornElementsAreNamed, with what to do. Groups may share memory as they like, as far as block ids tell; so may views of other shapes.
func TestTornElementsAreNamed(t *testing.T) {
	view := func(layer uint32, base uint64) View {
		return View{Region: 1, Base: base, NumBlocks: 8, BlockStride: 4096, Layer: layer, Kind: Paged, Part: "kv",
			BlockSize: 4, Heads: 2, TotalHeads: 2, ContentBytes: 64, HeadStride: 64, TokenStride: 128}
	}
	views := []View{view(0, 0), view(1, 512), view(2, 1024-32)}
	const say = `layout: views 1 and 2 (layer 1 part "kv" and layer 2 part "kv") of group 0 overlap within a block (region 0x1, base 512 and 992): ` +
		"give each memory of its own, or the same base if they share their KV"
	if _, err := New(views, nil, oneRegion(1<<20)); err == nil || err.Error() != say {
		t.Errorf("error %v, want %s", err, say)
	}
	other := views[2]
	other.Group = 1
	narrow := views[2]
	narrow.ContentBytes = 32
	for _, v := range []View{view(2, 512), view(2, 1024), other, narrow} {
		if _, err := New([]View{views[0], views[1], v}, nil, oneRegion(1<<20)); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// TestDomainsOfHybridModels: three groups over the same pages, of other block sizes and heads.
func TestDomainsOfHybridModels(t *testing.T) {
	var views []View
	for layer := range uint32(12) {
		v := View{Region: 1, Base: uint64(layer/3) * 8 * 4096, NumBlocks: 8, BlockStride: 4096, Layer: layer, Group: layer % 3, Kind: Paged, Part: "kv",
			Heads: 4, TotalHeads: 4, BlockSize: 16, ContentBytes: 64, HeadStride: 64, TokenStride: 256}
		if v.Group == 2 {
			v.BlockSize, v.HeadStride, v.TokenStride = 64, 16, 64
			v.ContentBytes = 16
		}
		views = append(views, v)
	}
	l, err := New(views, nil, oneRegion(4*8*4096))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.domains) != 1 || l.domains[0] != 8 {
		t.Errorf("hold domains %v, want one of 8 blocks", l.domains)
	}
	lists := []BlockList{{Group: 0, NTokens: 32, IDs: []uint32{1, 2}}, {Group: 2, NTokens: 64, IDs: []uint32{2}}}
	const say = "blocks: id 2 is in the lists of group 0 (position 1) and group 2 (position 0), whose blocks are the same memory"
	if err := l.CheckBlocks(lists); err == nil || err.Error() != say {
		t.Errorf("error %v, want %s", err, say)
	}
	h := NewHolds(l)
	if _, err := h.Acquire(lists[:1], true); err != nil {
		t.Fatal(err)
	}
	if run, err := h.Acquire(lists[1:], false); err == nil || run != (Run{Group: 2, First: 2, Count: 1}) {
		t.Errorf("group 2 may read what group 0 writes: %v %v", run, err)
	}
}

// TestPlacesAreBounded: a few numbers must not make a layout that takes seconds to look at, here and at every peer.
func TestPlacesAreBounded(t *testing.T) {
	v := View{Region: 1, NumBlocks: 2, BlockStride: 1, ContentBytes: 1, HeadStride: 2, TokenStride: 16, Kind: Paged, BlockSize: maxPieces / 8, Heads: 8, TotalHeads: 8, Part: "kv"}
	if _, err := New([]View{v}, nil, oneRegion(16<<20)); err != nil {
		t.Error(err)
	}
	v.BlockSize++
	_, err := New([]View{v}, nil, oneRegion(16<<20))
	if err == nil || !strings.Contains(err.Error(), "spreads the tokens and heads of a block over too many places (more than 32768 in all views)") {
		t.Errorf("error %v", err)
	}
}

// TestPairsOfPlacesAreBounded, for views that lie interleaved in several places each.
func TestPairsOfPlacesAreBounded(t *testing.T) {
	views := make([]View, MaxViews)
	for layer := range views {
		views[layer] = View{Region: 1, Base: uint64(layer), NumBlocks: 2, BlockStride: MaxViews, ContentBytes: 1, Layer: uint32(layer), Kind: Paged, Part: "kv",
			BlockSize: 1, TokenStride: 1, Heads: 1, HeadStride: 2 * MaxViews, TotalHeads: 2}
	}
	if _, err := New(views, nil, oneRegion(1<<20)); err != nil {
		t.Error(err)
	}
	for i := range views {
		views[i].Heads = 2
	}
	_, err := New(views, nil, oneRegion(1<<20))
	if err == nil || !strings.Contains(err.Error(), "views lie interleaved in too many pieces (more than 8390656 pairs)") {
		t.Errorf("error %v", err)
	}
}

// TestBlocksOfALayoutAreBounded: those of all groups, those that lie on each other counted once (which TestOverlapOfFarIDsTakesLittle needs).
func TestBlocksOfALayoutAreBounded(t *testing.T) {
	v := View{Region: 1, NumBlocks: MaxBlocks, BlockStride: 1, ContentBytes: 1, Kind: Opaque, Part: "ssm"}
	w := v
	w.Group, w.Base, w.NumBlocks = 1, MaxBlocks, 1
	_, err := New([]View{v, w}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "67108865 blocks in all groups; must be at most 67108864") {
		t.Errorf("error %v", err)
	}
}

// TestSharedBytesAloneAreRefused: of two groups with the same strides, or of which one has a single block, New accepts every pair that has no
// byte in blocks of different ids, however far apart or into each other they lie.
func TestSharedBytesAloneAreRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(group uint32) View {
			few := func(what string, from, to int) uint64 { return uint64(rapid.IntRange(from, to).Draw(t, what)) }
			v := View{Region: 1, Base: few("base", 0, 40), NumBlocks: few("blocks", 1, 4), ContentBytes: few("content", 1, 12), Group: group, Kind: Opaque, Part: "ssm"}
			v.BlockStride = v.ContentBytes + few("pad", 0, 12)
			if v.NumBlocks == 1 {
				v.ContentBytes = few("large", 1, 40)
			}
			return v
		}
		v, w := draw(0), draw(1)
		if v.NumBlocks > 1 && w.NumBlocks > 1 {
			v.BlockStride = max(v.BlockStride, w.BlockStride)
			w.BlockStride = v.BlockStride
		}
		shared := false
		for i := range v.NumBlocks {
			for k := range w.NumBlocks {
				a, b := v.Base+i*v.BlockStride, w.Base+k*w.BlockStride
				shared = shared || i != k && a < b+w.ContentBytes && b < a+v.ContentBytes
			}
		}
		if _, err := New([]View{v, w}, nil, nil); (err != nil) != shared {
			t.Fatalf("blocks of different ids share bytes: %v, error %v; views %+v", shared, err, []View{v, w})
		}
	})
}

// TestDomainsAcceptOneTensor: all layers, parts and heads interleaved in every order that engines use.
func TestDomainsAcceptOneTensor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.Permutation([]string{"block", "layer", "token", "head"}).Draw(t, "order")
		counts := map[string]uint64{"block": 6, "layer": 5, "token": 4, "head": 3}
		strides, at := map[string]uint64{}, uint64(2)
		for _, d := range dims {
			strides[d] = at
			at *= counts[d]
		}
		var views []View
		for layer := range uint32(5) {
			views = append(views, View{Region: 1, Base: uint64(layer) * strides["layer"], NumBlocks: 6, BlockStride: strides["block"], Layer: layer,
				Kind: Paged, Part: "kv", Heads: 3, TotalHeads: 3, BlockSize: 4, ContentBytes: 2, HeadStride: strides["head"], TokenStride: strides["token"]})
		}
		if _, err := New(views, nil, oneRegion(at)); err != nil {
			t.Fatalf("dimensions %v (innermost first): %v", dims, err)
		}
	})
}

// BenchmarkNew is the worst that a peer's layout can cost: as many views as there may be, all interleaved.
func BenchmarkNew(b *testing.B) {
	var views []View
	for layer := range uint32(MaxViews) {
		views = append(views, View{Region: 1, Base: uint64(layer) * 16, NumBlocks: 1000, BlockStride: 16 * MaxViews * 4, Layer: layer, Kind: Paged,
			Part: "kv", Heads: 1, TotalHeads: 1, BlockSize: 4, ContentBytes: 16, HeadStride: 16, TokenStride: 16 * MaxViews})
	}
	for b.Loop() {
		if _, err := New(views, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
