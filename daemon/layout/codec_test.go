package layout

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func codecLayout(t testing.TB) *Layout {
	l, err := New([]View{plain(), opaqueOf(2)}, []Field{{"dtype", "bf16"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestEncodeGolden: daemons of other versions read these bytes.
func TestEncodeGolden(t *testing.T) {
	const want = "0102" + // version, views
		"000880012010100101000004010204026b76" + // Base NumBlocks BlockStride TokenStride HeadStride ContentBytes Region Kind Layer Group BlockSize FirstHead Heads TotalHeads Part
		"0008800100006401020002000001010373736d" +
		"01" + "056474797065" + "0462663136" // fields
	if got := hex.EncodeToString(codecLayout(t).Encode()); got != want {
		t.Errorf("encoded\n%s, want\n%s", got, want)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	good := codecLayout(t).Encode()
	l, err := Decode(good)
	if err != nil || l.Digest() != codecLayout(t).Digest() {
		t.Fatalf("round trip: %v", err)
	}
	for i := range good {
		if _, err := Decode(good[:i]); err == nil {
			t.Errorf("the first %d bytes are a layout", i)
		}
	}
	if _, err := Decode(append(bytes.Clone(good), 0)); err == nil {
		t.Error("a byte too many went unseen")
	}
	future := bytes.Clone(good)
	future[0] = 2
	if _, err := Decode(future); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("version 2: %v", err)
	}
	long := append([]byte{1, 0x82, 0}, good[2:]...)
	if _, err := Decode(long); err == nil || !strings.Contains(err.Error(), "canonical") {
		t.Errorf("a number in two bytes instead of one: %v", err)
	}
	if _, err := Decode(make([]byte, MaxEncoded+1)); err == nil || !strings.Contains(err.Error(), "must be at most") {
		t.Errorf("too long: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(codecLayout(f).Encode())
	f.Add(threeGroups(f, 1000).Encode())
	f.Add([]byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(l.Encode(), b) {
			t.Fatalf("%x decodes, but encodes as %x", b, l.Encode())
		}
		NewHolds(l)
	})
}
