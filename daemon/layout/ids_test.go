package layout

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestIDsGolden(t *testing.T) {
	ids := []uint32{0, 1, 2, NoBlock, 5, 4, 1000, NoBlock - 1, 0}
	const want = "000202" + "05" + "0c" + "01" + "c80f" + "acf0ffff1f" + "fbffffff1f"
	got := AppendIDs(nil, ids)
	if hex.EncodeToString(got) != want {
		t.Errorf("%x, want %s", got, want)
	}
	if back, err := DecodeIDs(got, len(ids)); err != nil || !slices.Equal(back, ids) {
		t.Errorf("%v %v", back, err)
	}
}

func TestDecodeIDsRefuses(t *testing.T) {
	next16 := strings.Repeat("02", 16) // sixteen ids, each one more than the one before
	for _, c := range []struct {
		hex   string
		count int
	}{
		{"", 1}, {"00", 0}, {"00", 2}, {"0000", 1}, {"80", 1}, {"8000", 1}, {"808080808000", 2}, {"03", 1},
		{"feffffff1f", 1}, {"ffffffff7f", 1}, {"00", -1}, {"00", MaxIDs + 1},
		{"03" + next16, 17}, {"8000" + next16, 17}, {"deffffff1f" + next16, 17}, // the first is negative; not in its shortest form; so large that the last is no id
	} {
		b, _ := hex.DecodeString(c.hex)
		if ids, err := DecodeIDs(b, c.count); err == nil {
			t.Errorf("%s is %d ids: %v", c.hex, c.count, ids)
		}
	}
}

func FuzzIDs(f *testing.F) {
	f.Add([]byte{0, 2, 2, 5, 0x0c, 0x01}, 6)
	f.Add(AppendIDs(nil, []uint32{NoBlock, 7, 1 << 31, 0}), 4)
	f.Fuzz(func(t *testing.T, b []byte, count int) {
		ids, err := DecodeIDs(b, count)
		if err != nil {
			return
		}
		if again := AppendIDs(nil, ids); len(ids) != count || !bytes.Equal(again, b) {
			t.Fatalf("%x is %v, which is %x", b, ids, again)
		}
	})
}

func BenchmarkIDs(b *testing.B) {
	const n = 262144
	ids := make([]uint32, n)
	for i, id := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		ids[i] = uint32(id)
	}
	buf := AppendIDs(nil, ids)
	for b.Loop() {
		buf = AppendIDs(buf[:0], ids)
		if _, err := DecodeIDs(buf, n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/id")
}
