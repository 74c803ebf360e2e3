package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// plain is a view of 8 blocks of 4 tokens, 2 of 4 heads, 16 bytes per element, in 1024 bytes of region 1.
func plain() View {
	return View{Region: 1, NumBlocks: 8, BlockStride: 128, TokenStride: 32, HeadStride: 16, ContentBytes: 16,
		Kind: Paged, BlockSize: 4, FirstHead: 1, Heads: 2, TotalHeads: 4, Part: "kv"}
}

func oneRegion(bytes uint64) func(RegionID) (uint64, bool) {
	return func(r RegionID) (uint64, bool) { return bytes, r == 1 }
}

// with returns plain changed by f.
func with(f func(v *View)) View {
	v := plain()
	f(&v)
	return v
}

func TestNewRefusesBadViews(t *testing.T) {
	opaque := View{Region: 1, NumBlocks: 8, BlockStride: 128, ContentBytes: 128, Kind: Opaque, Part: "ssm"}
	cases := []struct {
		view View
		say  string
	}{
		{with(func(v *View) { v.Region = 0 }), "region 0"},
		{with(func(v *View) { v.Region = 2 }), "region 0x2 is not registered"},
		{with(func(v *View) { v.Kind = 3 }), "kind 3"},
		{with(func(v *View) { v.Group = 64 }), "group 64; must be below 64"},
		{with(func(v *View) { v.NumBlocks = 0 }), "num_blocks 0"},
		{with(func(v *View) { v.NumBlocks = MaxBlocks + 1 }), "num_blocks 67108865; must be 1 to 67108864"},
		{with(func(v *View) { v.NumBlocks = 9 }), "end at byte 1152; region 0x1 has 1024 bytes"},
		{with(func(v *View) { v.Base = 1 }), "end at byte 1025"},
		{with(func(v *View) { v.Base = 1<<64 - 1 }), "past the largest offset"},
		{with(func(v *View) { v.BlockSize = 0 }), "block_size 0"},
		{with(func(v *View) { v.BlockSize = 5 }), "block_stride 128; must be at least the 160 bytes"},
		{with(func(v *View) { v.BlockSize = MaxBlockSize + 1 }), "block_size 1048577"},
		{with(func(v *View) { v.BlockStride = 127 }), "block_stride 127; must be at least the 128 bytes"},
		{with(func(v *View) { v.BlockStride = 1 << 62 }), "block_stride 4611686018427387904 times 8 ends past"},
		{with(func(v *View) { v.TokenStride = 31 }), "token_stride 31; must be at least the 32 bytes"},
		{with(func(v *View) { v.HeadStride = 0 }), "head_stride 0; must be at least the 16 bytes"},
		{with(func(v *View) { v.HeadStride = 31 }), "token_stride 32; must be at least the 47 bytes"},
		{with(func(v *View) { v.ContentBytes = 0 }), "content_bytes 0"},
		{with(func(v *View) { v.ContentBytes = 1<<64 - 1 }), "head_stride 16; must be at least"},
		{with(func(v *View) { v.Heads = 0 }), "heads 0"},
		{with(func(v *View) { v.Heads = 4 }), "heads 4 from first_head 1; must be at least 1 and within total_heads 4"},
		{with(func(v *View) { v.FirstHead = 1<<32 - 1 }), "from first_head 4294967295"},
		{with(func(v *View) { v.TotalHeads = 0 }), "total_heads 0"},
		{with(func(v *View) { v.FirstHead, v.Heads, v.TotalHeads = 0, 0, 0 }), "total_heads 0"}, // opaque views alone may leave them out
		{with(func(v *View) { v.TotalHeads = MaxHeads + 1 }), "total_heads 65537"},
		{with(func(v *View) { v.Part = "" }), "part of 0 bytes"},
		{with(func(v *View) { v.Part = strings.Repeat("k", 16) }), "part of 16 bytes; must be 1 to 15"},
		{with(func(v *View) { v.Part = "k\x00" }), `part "k\x00"`},
		{func() View { v := opaque; v.TokenStride = 1; return v }(), "strides (1, 0); must be 0"},
		{func() View { v := opaque; v.BlockStride = 127; return v }(), "block_stride 127"},
		{func() View { v := opaque; v.NumBlocks, v.ContentBytes = 1, 1<<63; return v }(), "content_bytes 9223372036854775808"},
	}
	for _, c := range cases {
		good := opaque
		good.Group, good.Region, good.NumBlocks, good.ContentBytes = 9, 1, 1, 1
		_, err := New([]View{good, c.view}, nil, oneRegion(1024))
		if err == nil || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), "view 1") {
			t.Errorf("%+v: error %v; should name view 1 and %q", c.view, err, c.say)
		}
	}
	if _, err := New([]View{plain(), opaqueOf(1)}, nil, oneRegion(1024)); err != nil {
		t.Errorf("good views: %v", err)
	}
	first, second := with(func(v *View) { v.FirstHead = 0 }), with(func(v *View) { v.FirstHead, v.Base = 2, 1024 })
	if _, err := New([]View{second, first}, nil, oneRegion(2048)); err != nil {
		t.Errorf("heads 0 to 2 of a layer in one view, 2 to 4 in another: %v", err)
	}
}

// opaqueOf returns an opaque view over the same bytes as plain.
func opaqueOf(group uint32) View {
	return View{Region: 1, NumBlocks: 8, BlockStride: 128, ContentBytes: 100, Kind: Opaque, Part: "ssm", Group: group}
}

func TestNewRefusesBadSets(t *testing.T) {
	second := func(f func(v *View)) []View {
		v := plain()
		v.Base, v.Layer = 1024, 1
		f(&v)
		return []View{plain(), v}
	}
	many := make([]View, MaxViews+1)
	cases := []struct {
		views []View
		fp    []Field
		say   string
	}{
		{nil, nil, "0 views; must be 1 to 4096"},
		{many, nil, "4097 views"},
		{second(func(v *View) { v.BlockSize = 3 }), nil, "group 0: block_size 4 and 3"},
		{second(func(v *View) { v.NumBlocks = 7 }), nil, "group 0: num_blocks 8 and 7"},
		{second(func(v *View) { v.Kind, v.TokenStride, v.HeadStride = Opaque, 0, 0 }), nil, "group 0: kind 1 and 2"},
		{second(func(v *View) { v.Layer = 0 }), nil, `views 0 and 1 both hold head 1 of layer 0 part "kv" in group 0`},
		{second(func(v *View) { v.Layer, v.FirstHead = 0, 2 }), nil, "hold head 2"},
		{second(func(v *View) { v.Base = 64 }), nil, "lie over each other"},
		{second(func(v *View) { v.Group, v.Base, v.BlockStride = 1, 0, 256 }), nil, "block_stride 128 and 256"},
		{[]View{plain()}, []Field{{"", "x"}}, `key "": 0 bytes; must be 1 to 128`},
		{[]View{plain()}, []Field{{"dtype", ""}}, `value "" of key "dtype": 0 bytes; must be 1 to 256`},
		{[]View{plain()}, []Field{{"dtype", "a\x00"}}, "UTF-8"},
		{[]View{plain()}, []Field{{"dtype", "a"}, {"b", "c"}, {"dtype", "x"}}, `key "dtype" is given twice, with values "a" and "x"`},
		{[]View{plain()}, make([]Field, 65), "65 fields; must be at most 64"},
	}
	for _, c := range cases {
		if _, err := New(c.views, c.fp, oneRegion(4096)); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("error %v; should say %q", err, c.say)
		}
	}
}

func TestNewKeepsCanonicalOrder(t *testing.T) {
	var views []View
	for i := range uint32(6) {
		v := plain()
		v.Base, v.Layer, v.Group, v.Part = uint64(i)*1024, 7-i/2, i%2, []string{"v", "k", "kv"}[i%3]
		views = append(views, v)
	}
	given := slices.Clone(views)
	l, err := New(views, []Field{{"model", "m"}, {"dtype", "bf16"}}, oneRegion(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(views, given) {
		t.Error("New changed its argument")
	}
	if !slices.IsSortedFunc(l.Views(), func(a, b View) int { return compareViews(&a, &b) }) {
		t.Errorf("views %+v are not in canonical order", l.Views())
	}
	if got := fmt.Sprint(l.Layers(), l.Fingerprint()); got != "[5 6 7] [{dtype bf16} {model m}]" {
		t.Errorf("layers and fingerprint %s", got)
	}
	slices.Reverse(views)
	m, err := New(views, []Field{{"dtype", "bf16"}, {"model", "m"}}, nil)
	if err != nil || m.Digest() != l.Digest() {
		t.Errorf("the order in which views are given changes the digest (%v)", err)
	}
	if g := l.Group(1); g == nil || len(g.Views) != 3 || l.Group(2) != nil {
		t.Errorf("group 1 is %+v", g)
	}
}

func TestFingerprintDiff(t *testing.T) {
	make := func(fp ...Field) *Layout {
		l, err := New([]View{plain()}, fp, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a := make(Field{"dtype", "bf16"}, Field{"layers", "32"})
	cases := []struct {
		b    *Layout
		want string
	}{
		{a, "   false"},
		{make(Field{"layers", "32"}, Field{"dtype", "fp8"}), "dtype bf16 fp8 true"},
		{make(Field{"layers", "32"}), "dtype bf16  true"},
		{make(Field{"dtype", "bf16"}, Field{"layers", "32"}, Field{"model", "x"}), "model  x true"},
		{make(Field{"dtype", "bf16"}, Field{"extra", "1"}, Field{"layers", "32"}), "extra  1 true"},
	}
	for _, c := range cases {
		key, va, vb, differ := FingerprintDiff(a, c.b)
		if got := fmt.Sprintln(key, va, vb, differ); strings.TrimSpace(got) != strings.TrimSpace(c.want) {
			t.Errorf("difference %q, want %q", got, c.want)
		}
		if same := SameFingerprint(a, c.b); same == differ {
			t.Errorf("difference %q, and they are the same: %v", c.want, same)
		}
	}
}

// TestViewsThatShareAPlace: of each group, where there are any.
func TestViewsThatShareAPlace(t *testing.T) {
	view := func(group, layer uint32, base uint64) View {
		return View{Region: 1, Base: base, NumBlocks: 2, BlockStride: 64, TokenStride: 8, HeadStride: 8, ContentBytes: 8,
			Layer: layer, Group: group, Kind: Paged, BlockSize: 2, Heads: 1, TotalHeads: 1, Part: "kv"}
	}
	l, err := New([]View{view(0, 0, 0), view(0, 1, 16), view(0, 2, 0), view(0, 3, 16), view(0, 4, 32), view(1, 5, 0), view(1, 6, 16)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Group(0).Shared, []uint16{0, 1, 0, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("group 0: %v, want %v", got, want)
	}
	if got := l.Group(1).Shared; got != nil { // that they lie over those of group 0 is a matter of block ids
		t.Errorf("group 1: %v, want none", got)
	}
}
