package tcp

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"net"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/transport"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TestGolden holds the frame to its bytes: another version's daemon reads them.
func TestGolden(t *testing.T) {
	h := header{flags: flagCRC, xfer: 0x0102030405060708, seg: 9, slice: 10, attempt: 11, length: 5}
	got := hex.EncodeToString(frame(h, []byte("bytes"), statusWhole))
	const want = "4b56504401010100" + "0807060504030201" + "090000000a000000" + "0b00000005000000" + "00000000" + "1ad118db" +
		"6279746573" + "00000000" + "929c6ed0" + "382f1572"
	if got != want {
		t.Errorf("frame\n%s, want\n%s", got, want)
	}
}

func FuzzHeader(f *testing.F) {
	h := header{xfer: 1, slice: 2, length: 3}
	var b [headerSize]byte
	h.encode(&b)
	f.Add(b[:])
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var in, out [headerSize]byte
		copy(in[:], raw)
		var h header
		if h.decode(&in) != nil {
			return
		}
		if h.length == 0 || h.length > maxLength || h.trailerSize() > maxTrailer {
			t.Fatalf("accepted %+v", h)
		}
		if h.encode(&out); in != out {
			t.Fatalf("%x was read as %+v, which is %x", in, h, out)
		}
	})
}

func FuzzTrailer(f *testing.F) {
	f.Add(appendTrailer(nil, statusWhole, nil), 0)
	f.Add(appendTrailer(nil, statusFault, []uint32{1, 2}), 2)
	f.Fuzz(func(t *testing.T, raw []byte, n int) {
		if n < 0 || n > 300 || len(raw) != 8+4*n {
			return
		}
		sums := make([]uint32, n)
		status, wrong, err := readTrailer(raw, sums)
		if err == nil && wrong < 0 && !bytes.Equal(appendTrailer(nil, status, sums), raw) {
			t.Fatalf("%x was read as status %d", raw, status)
		}
	})
}

// TestSums: checksums do not depend on how the bytes come.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		skip, n, after := rapid.IntRange(0, 40).Draw(t, "skip"), rapid.IntRange(1, 3*piece).Draw(t, "length"), rapid.IntRange(0, 9).Draw(t, "after")
		b := make([]byte, skip+n+after)
		for i := range b {
			b[i] = byte(i * 7 >> 3)
		}
		var s sums
		s.reset(skip, n)
		for rest := b; len(rest) > 0; {
			k := rapid.IntRange(1, len(rest)).Draw(t, "part")
			s.add(rest[:k])
			rest = rest[k:]
		}
		var want []uint32
		for rest := b[skip : skip+n]; len(rest) > 0; {
			k := min(len(rest), piece)
			want = append(want, crc32.Checksum(rest[:k], castagnoli))
			rest = rest[k:]
		}
		if len(s.done) != len(want) {
			t.Fatalf("%d checksums, want %d", len(s.done), len(want))
		}
		for i := range want {
			if s.done[i] != want[i] {
				t.Fatalf("checksum %d: %#x, want %#x", i, s.done[i], want[i])
			}
		}
	})
}

// TestChecksumPolicy: where payloads carry checksums when nobody said so.
func TestChecksumPolicy(t *testing.T) {
	near, far := connect(t)
	defer near.Close()
	defer far.Close()
	plain := &transport.Link{Conn: near, TCP: near, Here: true}
	forwarded := &transport.Link{Conn: near, TCP: near} // to another host, though its ends here are loopback addresses
	tls := &transport.Link{Conn: near}
	for _, c := range []struct {
		crc  CRC
		link *transport.Link
		want bool
	}{
		{CRCAuto, plain, false}, {CRCAuto, forwarded, true}, {CRCAuto, tls, false}, {CRCOn, plain, true}, {CRCOn, tls, true}, {CRCOff, plain, false},
	} {
		if got := c.crc.checksums(c.link); got != c.want {
			t.Errorf("policy %d on %+v: %v", c.crc, c.link, got)
		}
	}
	for ip, want := range map[string]bool{"127.0.0.5": true, "::1": true, "::ffff:127.0.0.1": true, "10.0.0.1": false, "2001:db8::1": false} {
		if got := transport.Loopback(&net.TCPAddr{IP: net.ParseIP(ip)}); got != want {
			t.Errorf("%s is loopback: %v", ip, got)
		}
	}
}
