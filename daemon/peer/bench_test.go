package peer

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// small is a hand-over of 4 KiB as its two messages.
func small() (*transfer.MsgTake, *transfer.MsgGrant) {
	ranks := []transfer.RankRef{{Rank: 0, Digest: [32]byte{1}}}
	blocks := []layout.BlockList{{NTokens: 16, IDs: []uint32{77}}}
	take := &transfer.MsgTake{
		Xfer: 1 << 40, Engine: "decode-0", Instance: "decode-0-1f2e", TakeID: 1, Parts: 1, Key: bytes.Repeat([]byte{'k'}, 24),
		Token: bytes.Repeat([]byte{7}, 16), Ranks: ranks, Blocks: blocks, Deadline: 30e9,
	}
	grant := &transfer.MsgGrant{
		Xfer: 1 << 40, Incarnation: 1, Engine: "prefill-0", Whole: true, Ranks: ranks, Blocks: blocks, Tokens: 16, Last: true, Transport: "tcp",
		Bytes: 4096, Inline: make([]byte, 4096), InlineCRC: 1, HasInline: true,
	}
	return take, grant
}

// BenchmarkRequest is a take and its grant through two managers; BenchmarkBare moves as many bytes with nothing around them.
func BenchmarkRequest(b *testing.B) {
	for _, mode := range []struct {
		name   string
		change func(*Config)
	}{{"tls", nil}, {"insecure", func(c *Config) { c.Insecure = true }}} {
		b.Run(mode.name, func(b *testing.B) {
			take, grant := small()
			cl := newCluster(b)
			x, y := cl.node("a", mode.change), cl.node("b", mode.change)
			x.knows(y)
			x.Dial("b")
			epoch := wait[transfer.PeerUp](x, nil).Epoch
			wait[transfer.PeerUp](y, nil)
			answers := make(chan struct{}, 1)
			y.onMessage(func(transfer.PeerMsg) { y.Send("a", epoch, grant) })
			x.onMessage(func(transfer.PeerMsg) { answers <- struct{}{} })
			took := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				t := time.Now()
				x.Send("b", epoch, take)
				<-answers
				took = append(took, time.Since(t))
			}
			b.StopTimer()
			report(b, took)
		})
	}
}

func BenchmarkBare(b *testing.B) {
	for _, mode := range []string{"tls", "plain"} {
		b.Run(mode, func(b *testing.B) {
			cl := newCluster(b)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			var dialed net.Conn
			if dialed, err = net.Dial("tcp", l.Addr().String()); err != nil {
				b.Fatal(err)
			}
			accepted, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			raw := []io.Closer{dialed, accepted, l}
			if mode == "tls" {
				dialed, accepted = tls.Client(dialed, cl.identity("a").Config()), tls.Server(accepted, cl.identity("b").Config())
			}
			go answer(accepted)
			took := make([]time.Duration, 0, b.N)
			out, in := make([]byte, bareTake), make([]byte, bareGrant)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				t := time.Now()
				if _, err := dialed.Write(out); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(dialed, in); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(t))
			}
			b.StopTimer()
			report(b, took)
			for _, c := range raw {
				_ = c.Close()
			}
		})
	}
}

// The sizes of small's two frames.
const bareTake, bareGrant = 170, 4290

func answer(c net.Conn) {
	in, out := make([]byte, bareTake), make([]byte, bareGrant)
	for {
		if _, err := io.ReadFull(c, in); err != nil {
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

func BenchmarkEncode(b *testing.B) {
	eachSmall(b, func(b *testing.B, msg transfer.Msg) {
		var buf []byte
		var err error
		for b.Loop() {
			if buf, err = appendMsg(buf[:0], 1<<60, msg, false); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	eachSmall(b, func(b *testing.B, msg transfer.Msg) {
		wire, err := appendMsg(nil, 1<<60, msg, false)
		if err != nil {
			b.Fatal(err)
		}
		r := bytes.NewReader(nil)
		fs := newFrames(r)
		var known stores
		for b.Loop() {
			r.Reset(wire)
			f, err := fs.next(maxFrame)
			if err == nil {
				_, err = decode(f.kind, f.body, &known)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func eachSmall(b *testing.B, f func(*testing.B, transfer.Msg)) {
	take, grant := small()
	for _, msg := range []transfer.Msg{take, grant, &transfer.MsgEnd{Xfer: 1 << 40, Status: transfer.Done}} {
		b.Run(fmt.Sprintf("%T", msg), func(b *testing.B) {
			b.ReportAllocs()
			f(b, msg)
		})
	}
}
