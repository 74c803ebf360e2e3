package hostile

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// TestPeers: strangers get no further than their first bytes, and a node of the cluster that has gone mad no further than its own
// channel.
func TestPeers(t *testing.T) {
	c := cluster.New(t)
	a := c.Node("a").Start()
	b := c.Node("b", a).Start()
	mad, quiet := identity(t, c.CA(), c.CA(), "mad"), identity(t, c.CA(), c.CA(), "quiet")
	foreign := filepath.Join(c.Dir, "foreign")
	if err := pki.Init(foreign, "foreign", time.Hour); err != nil {
		t.Fatal(err)
	}
	stranger := identity(t, foreign, foreign, "stranger")
	besiege(t, []*cluster.Node{a, b}, "a", shouts, knocks(nil), knocks(stranger), raves(mad), bindsLinks(mad))
	for _, n := range []*cluster.Node{a, b} {
		cluster.Eventually(t, "what the mad node left is gone", func() bool { return n.Peer("mad").State != "up" })
		n.Says("malformed frame, channel closed", "peer=mad")
		brings(t, n, quiet) // of the other not all is said
		n.Says("malformed frame, channel closed", "peer=quiet", "layout.blob")
	}
}

// brings sends a layout that is none, alone in all that it says: the channel is closed for it.
func brings(t *testing.T, n *cluster.Node, id *pki.Identity) {
	t.Helper()
	tcp, err := net.Dial("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	_ = tcp.SetDeadline(time.Now().Add(cluster.Patience))
	conn := tls.Client(tcp, id.Config("kvpipe/1"))
	hello, err := greets(conn, "quiet")
	if err != nil || hello.GetHello() == nil {
		t.Fatalf("%v, %v: want a hello", hello, err)
	}
	send(conn, &peerpb.Frame{Epoch: hello.GetHello().GetEpoch(), Kind: &peerpb.Frame_Layout{Layout: &peerpb.Layout{Digest: make([]byte, 32), Blob: []byte("mad")}}})
	for {
		f, err := receive(conn)
		if err != nil {
			t.Fatalf("hung up without a reason: %v", err)
		}
		if c := f.GetClose(); c != nil {
			if !strings.Contains(c.GetText(), "layout.blob") {
				t.Errorf("closed for %q", c.GetText())
			}
			return
		}
	}
}

// identity issues a certificate and reads it.
func identity(t *testing.T, ca, out, name string) *pki.Identity {
	t.Helper()
	if err := pki.IssueNode(ca, out, name, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	cert, key := pki.NodeFiles(out, name)
	id, err := pki.Open(filepath.Join(ca, pki.CAFile), cert, key, name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// attention is how long an attacker listens for an answer that may never come.
const attention = 150 * time.Millisecond

func dial(t *testing.T, n *cluster.Node) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr)
	if err != nil {
		t.Errorf("connect: %v", err)
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(attention))
	return conn
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// shouts sends bytes that are no TLS, or stops in the middle of what might become some.
func shouts(t *testing.T, n *cluster.Node, r *rand.Rand) {
	conn := dial(t, n)
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	b := noise(r, 1+r.IntN(4000))
	switch r.IntN(4) {
	case 0:
		copy(b, "KVPC") // a channel without TLS
	case 1:
		copy(b, "KVPL") // a data link without TLS
	case 2:
		copy(b, []byte{22, 3, 1, 64, 0, 1}) // a client hello
	}
	_, _ = conn.Write(b)
	if r.IntN(4) > 0 {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
	}
}

// knocks is a TLS client with a certificate that the cluster does not know, or with none. What it says is what a node of the cluster would:
// brings, which says it as well, is answered.
func knocks(id *pki.Identity) attack {
	return func(t *testing.T, n *cluster.Node, r *rand.Rand) {
		proto := []string{"kvpipe/1", "kvpipe-data/1", "h2"}[r.IntN(3)]
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{proto}}
		if id != nil {
			cfg = id.Config(proto)
			cfg.VerifyConnection = nil
		}
		tcp := dial(t, n)
		if tcp == nil {
			return
		}
		_ = tcp.SetDeadline(time.Now().Add(cluster.Patience)) // it is hung up on, or answered, whatever it says
		conn := tls.Client(tcp, cfg)
		defer func() { _ = conn.Close() }()
		var f *peerpb.Frame
		var err error
		if proto == "kvpipe/1" {
			f, err = greets(conn, "stranger")
		} else {
			_, _ = conn.Write(noise(r, 100))
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("somebody without a certificate of the cluster is not hung up on, but hears %v, %v", f, err)
		}
	}
}

// greets says hello as that node, and returns what the other side says to it.
func greets(conn *tls.Conn, node string) (*peerpb.Frame, error) {
	send(conn, &peerpb.Frame{Kind: &peerpb.Frame_Hello{Hello: &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: node, Incarnation: 1, Version: "mad"}}})
	return receive(conn)
}

// raves opens a channel as a node of the cluster should, and then says whatever comes to its mind.
func raves(id *pki.Identity) attack {
	return func(t *testing.T, n *cluster.Node, r *rand.Rand) {
		tcp := dial(t, n)
		if tcp == nil {
			return
		}
		_ = tcp.SetDeadline(time.Now().Add(cluster.Patience)) // a hello is answered, or hung up on
		cfg := id.Config("kvpipe/1")
		conn := tls.Client(tcp, cfg)
		defer func() { _ = conn.Close() }()
		hello := &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "mad", Incarnation: r.Uint64(), Version: "mad", Streams: r.Uint32N(4), DataPlain: r.IntN(2) == 0}
		switch r.IntN(6) {
		case 0:
			hello.Node = "b"
		case 1:
			hello.ProtoMin, hello.ProtoMax = r.Uint32(), r.Uint32()
		case 2:
			hello.Streams = r.Uint32()
		}
		if !send(conn, &peerpb.Frame{Kind: &peerpb.Frame_Hello{Hello: hello}}) {
			return
		}
		answer, err := receive(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a hello is not answered: %v", hello)
		}
		if err != nil || answer.GetHello() == nil {
			return
		}
		_ = tcp.SetDeadline(time.Now().Add(attention))
		epoch := answer.GetHello().GetEpoch()
		for range 1 + r.IntN(40) {
			if r.IntN(12) == 0 {
				b := noise(r, 4+r.IntN(200))
				binary.LittleEndian.PutUint32(b, r.Uint32()>>r.IntN(32))
				if _, err := conn.Write(b); err != nil {
					return
				}
				continue
			}
			f := anything(r)
			f.Epoch = epoch
			if r.IntN(10) == 0 {
				f.Epoch = r.Uint64()
			}
			if !send(conn, f) {
				return
			}
		}
		if r.IntN(2) == 0 {
			_, _ = receive(conn)
		}
	}
}

// anything draws a message with fields that are plausible, or are not.
func anything(r *rand.Rand) *peerpb.Frame {
	xfer := r.Uint64N(4)
	key, token := []byte{'k', byte('0' + r.IntN(4))}, []byte("chaos-chaos-chaos")
	block := &peerpb.BlockList{Group: r.Uint32N(2), Ntokens: r.Uint32() >> r.IntN(32), Count: r.Uint32() >> r.IntN(32), Ids: noise(r, r.IntN(50))}
	blocks := []*peerpb.BlockList{block}
	ranks := []*peerpb.RankRef{{Rank: r.Uint32N(3), Digest: noise(r, 32)}}
	cause := &peerpb.Cause{Reason: r.Uint32N(20), Text: "mad"}
	take := &peerpb.Take{
		Xfer: xfer, Engine: "mad", Instance: "1", TakeId: r.Uint64N(4), Part: r.Uint32N(3), Parts: r.Uint32N(3), Key: key, Token: token,
		Ranks: ranks, Blocks: blocks, DeadlineNs: r.Uint64() >> r.IntN(64),
	}
	switch r.IntN(20) {
	case 0:
		return &peerpb.Frame{Kind: &peerpb.Frame_Take{Take: take}}
	case 1:
		return &peerpb.Frame{Kind: &peerpb.Frame_Grant{Grant: &peerpb.Grant{
			Xfer: xfer, Seg: r.Uint32N(3), Incarnation: r.Uint64(), Engine: "mad", Whole: true, Ranks: ranks, Blocks: blocks, Tokens: r.Uint32(),
			Last: r.IntN(2) == 0, Transport: []string{"tcp", "local", "x", ""}[r.IntN(4)], Slices: r.Uint32() >> r.IntN(32), Bytes: r.Uint64() >> r.IntN(64),
		}}}
	case 2:
		return &peerpb.Frame{Kind: &peerpb.Frame_Go{Go: &peerpb.Go{Xfer: xfer, Seg: r.Uint32N(3)}}}
	case 3:
		return &peerpb.Frame{Kind: &peerpb.Frame_Sent{Sent: &peerpb.Sent{Xfer: xfer, Incarnation: r.Uint64(), Segs: r.Uint32()}}}
	case 4:
		return &peerpb.Frame{Kind: &peerpb.Frame_End{End: &peerpb.End{Xfer: xfer, Incarnation: r.Uint64(), Status: r.Uint32N(6), Cause: cause}}}
	case 5:
		return &peerpb.Frame{Kind: &peerpb.Frame_EndAck{EndAck: &peerpb.EndAck{Xfer: xfer}}}
	case 6:
		return &peerpb.Frame{Kind: &peerpb.Frame_Abort{Abort: &peerpb.Abort{Xfer: xfer, Cause: cause}}}
	case 7:
		return &peerpb.Frame{Kind: &peerpb.Frame_Refuse{Refuse: &peerpb.Refuse{Xfer: xfer, Cause: cause, RetryNs: r.Uint64()}}}
	case 8:
		return &peerpb.Frame{Kind: &peerpb.Frame_Layout{Layout: &peerpb.Layout{Digest: noise(r, 32), Blob: noise(r, r.IntN(3000))}}}
	case 9:
		return &peerpb.Frame{Kind: &peerpb.Frame_NeedLayout{NeedLayout: &peerpb.NeedLayout{Xfer: xfer, End: r.Uint32N(3), Digests: [][]byte{noise(r, r.IntN(40))}}}}
	case 10:
		return &peerpb.Frame{Kind: &peerpb.Frame_Key{Key: &peerpb.Key{Id: r.Uint64(), Drop: r.IntN(2) == 0, Engine: "mad", Key: key, Token: token}}}
	case 11:
		return &peerpb.Frame{Kind: &peerpb.Frame_Heartbeat{Heartbeat: &peerpb.Heartbeat{Seq: r.Uint64(), Reply: r.IntN(2) == 0}}}
	case 12:
		return &peerpb.Frame{Kind: &peerpb.Frame_Resend{Resend: &peerpb.Resend{Xfer: xfer, Seg: r.Uint32N(2), Attempt: r.Uint32(), Slices: []uint32{r.Uint32()}}}}
	case 13, 14:
		return &peerpb.Frame{Kind: &peerpb.Frame_Seek{Seek: &peerpb.Seek{
			Xfer: r.Uint64N(100), Bind: r.Uint64N(4), Home: r.Uint64N(2), Base: r.Uint64() >> r.IntN(64), Buffer: r.IntN(2) == 0, Name: []string{"exchange", "x", ""}[r.IntN(3)],
			Match: r.Uint32N(9), Seq: r.Uint64N(4), Key: key, Tokens: make([]uint32, r.IntN(3)), Room: r.Uint64() >> r.IntN(64), KeepNs: r.Uint64() >> r.IntN(64),
			DeadlineNs: r.Uint64() >> r.IntN(64), Take: take,
		}}}
	case 15:
		return &peerpb.Frame{Kind: &peerpb.Frame_Found{Found: &peerpb.Found{
			Xfer: xfer, Home: r.Uint64(), Item: r.Uint64(), Bytes: r.Uint64() >> r.IntN(64), Meta: noise(r, r.IntN(40)), Key: key, Token: token,
			Taken: r.IntN(2) == 0,
		}}}
	case 16:
		return &peerpb.Frame{Kind: &peerpb.Frame_SeekParked{SeekParked: &peerpb.SeekParked{Xfer: xfer, Home: r.Uint64(), Why: r.Uint32N(300)}}}
	case 17:
		return &peerpb.Frame{Kind: &peerpb.Frame_SeekRefuse{SeekRefuse: &peerpb.SeekRefuse{Xfer: xfer, Cause: cause, RetryNs: r.Uint64()}}}
	case 18:
		return &peerpb.Frame{Kind: &peerpb.Frame_Unbind{Unbind: &peerpb.Unbind{Bind: r.Uint64N(4), Buffer: r.IntN(2) == 0, Name: "exchange"}}}
	}
	return &peerpb.Frame{Kind: &peerpb.Frame_Close{Close: &peerpb.Close{Reason: r.Uint32N(2000), Text: "mad"}}}
}

// bindsLinks opens data connections that belong to no channel.
func bindsLinks(id *pki.Identity) attack {
	return func(t *testing.T, n *cluster.Node, r *rand.Rand) {
		tcp := dial(t, n)
		if tcp == nil {
			return
		}
		conn := tls.Client(tcp, id.Config("kvpipe-data/1"))
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write(noise(r, 16+r.IntN(200))); err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 1))
	}
}

func send(w io.Writer, f *peerpb.Frame) bool {
	b, err := proto.Marshal(f)
	if err != nil {
		return false
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err == nil
}

func receive(conn io.Reader) (*peerpb.Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > 1<<20 {
		return nil, errors.New("frame too long")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	f := new(peerpb.Frame)
	return f, proto.Unmarshal(b, f)
}
