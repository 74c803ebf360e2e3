package hostile

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// TestClients: whatever a client does to its rings, its memory and its socket, it is its own end at most.
func TestClients(t *testing.T) {
	n := cluster.New(t).Node("a").Start()
	besiege(t, []*cluster.Node{n}, "", scribbles, asksNonsense, saysNonsense, punches, strangeDescriptors, floods, neverReads, exchanges, forks)
}

// join opens a session as any local process can; nil: the daemon had no place, which is its right.
func join(t *testing.T, n *cluster.Node, o sessiontest.Options) *sessiontest.Client {
	t.Helper()
	o.Timeout = cluster.Patience
	if o.Engine == "" {
		o.Engine = "hostile"
	}
	c, err := sessiontest.Dial(n.Socket, o)
	if err != nil {
		if r := sessiontest.Reason(err); r == transfer.Quota || r == transfer.Busy {
			return nil
		}
		t.Errorf("a new client is not let in: %v", err)
		return nil
	}
	return c
}

// withMemory gives the client a small region and a layout in it, and returns the region's memfd; negative: it has none.
func withMemory(t *testing.T, c *sessiontest.Client) (fd int) {
	t.Helper()
	fd, err := furnish(c)
	if err != nil {
		t.Errorf("set up: %v", err)
	}
	return fd
}

const memoryBlocks, memoryBlock = 16, 4096

func furnish(c *sessiontest.Client) (fd int, err error) {
	const bytes = memoryBlocks * memoryBlock
	fd, err = sys.MemfdCreate("hostile", bytes, sys.MemfdOptions{Prefault: true, Seals: sys.SealSize})
	if err != nil {
		return -1, err
	}
	region, err := c.Register(fd, bytes)
	if err != nil {
		return fd, err
	}
	return fd, c.SetLayout([]layout.View{{
		Region: region, NumBlocks: memoryBlocks, BlockStride: memoryBlock, TokenStride: 256, HeadStride: 256, ContentBytes: 256, Kind: layout.Paged,
		BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "hostile"}}, 0)
}

// anyOp draws an operation that makes some sense, about keys that others of its kind use too.
func anyOp(r *rand.Rand) transfer.Op {
	key, token := []byte{'k', byte('0' + r.IntN(4))}, []byte("sixteen bytes ok")
	ids := make([]uint32, r.IntN(6))
	for i := range ids {
		ids[i] = uint32(r.IntN(18))
	}
	blocks := []layout.BlockList{{NTokens: uint32(len(ids)) * 16, IDs: ids}}
	switch r.IntN(6) {
	case 0:
		return &transfer.OfferOp{Key: key, Token: token, Consumers: 1 + r.IntN(3), Sealed: r.IntN(2) == 0, Lease: transfer.Time(r.Int64N(1e9)), Blocks: blocks}
	case 1:
		return &transfer.TakeOp{
			Key: key, Token: token, Peer: []string{"", "nobody", "127.0.0.1:1"}[r.IntN(3)], TakeID: 1 + r.Uint64N(8), Parts: 1 + r.IntN(2),
			LayerSlot: transfer.NoSlot, Timeout: transfer.Time(r.Int64N(1e9)), Blocks: blocks,
		}
	case 2:
		return &transfer.CancelOp{Target: 1 + r.Uint64N(8)}
	case 3:
		return &transfer.WithdrawOp{Target: 1 + r.Uint64N(8)}
	case 4:
		return &transfer.DropOp{Key: key, Token: token, Timeout: 1e8}
	}
	return &transfer.ExtendOp{Target: 1 + r.Uint64N(8), Blocks: blocks}
}

// end goes with a word or without.
func end(c *sessiontest.Client, r *rand.Rand) {
	if r.IntN(2) == 0 {
		_ = c.Close()
		return
	}
	c.Kill()
}

// scribbles writes into its ring while the daemon reads it.
func scribbles(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "scribbler", SQ: 16, CQ: 16, Records: 1 << 16})
	if c == nil {
		return
	}
	defer end(c, r)
	mem := c.Bytes()
	for i := 0; i < 300 && c.Rings.Closed() == 0; i++ {
		switch r.IntN(4) {
		case 0:
			binary.LittleEndian.PutUint32(mem[r.IntN(6)*64:], uint32(r.IntN(64)))
		case 1:
			binary.LittleEndian.PutUint64(mem[r.IntN(len(mem)/8)*8:], r.Uint64())
		case 2:
			e, rec := sessiontest.Encode(anyOp(r))
			e.UserData = uint64(i) + 1
			_, _ = c.Rings.Submit(e, rec)
		case 3:
			_ = c.Wake()
		}
	}
}

// asksNonsense submits entries with fields and records that are half right.
func asksNonsense(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "dreamer", SQ: 64, CQ: 64, Records: 1 << 20})
	if c == nil {
		return
	}
	defer end(c, r)
	if fd := withMemory(t, c); fd >= 0 {
		defer func() { _ = sys.Close(fd) }()
	}
	for i := 0; i < 100 && c.Rings.Closed() == 0; i++ {
		e, rec := sessiontest.Encode(anyOp(r))
		e.UserData = uint64(i) + 1
		for range r.IntN(3) { // damage
			switch r.IntN(5) {
			case 0:
				e.Op = uint8(r.IntN(16))
			case 1:
				e.Flags = uint8(r.IntN(2))
			case 2:
				e.TimeoutNS = r.Uint64()
			case 3:
				if len(rec) >= 8 {
					binary.LittleEndian.PutUint32(rec[r.IntN(len(rec)/4)*4:], r.Uint32()>>r.IntN(32))
				}
			case 4:
				rec = rec[:r.IntN(len(rec)+1)&^7]
			}
		}
		_, _ = c.Rings.Submit(e, rec)
		_ = c.Wake()
		for {
			if _, _, ok := c.Rings.Next(); !ok {
				break
			}
		}
	}
}

// saysNonsense sends control messages of any kind, before HELLO and after, and bytes that are none.
func saysNonsense(t *testing.T, n *cluster.Node, r *rand.Rand) {
	if r.IntN(2) == 0 {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.Socket, Net: "unixpacket"})
		if err != nil {
			t.Errorf("connect: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		for range 1 + r.IntN(3) {
			b := make([]byte, r.IntN(1000))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			if len(b) >= 32 && r.IntN(2) == 0 {
				binary.LittleEndian.PutUint32(b, ring.Magic)
				binary.LittleEndian.PutUint16(b[4:], uint16(r.IntN(10)))
				binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-32))
			}
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
		return
	}
	c := join(t, n, sessiontest.Options{Engine: "babbler", SQ: 16, CQ: 16, Records: 1 << 16})
	if c == nil {
		return
	}
	defer end(c, r)
	for range 1 + r.IntN(10) {
		body := make([]byte, r.IntN(2000))
		for i := range body {
			body[i] = byte(r.Uint32()) >> r.IntN(8)
		}
		if _, err := c.Send(uint16(r.IntN(10)), body); err != nil {
			return
		}
	}
}

// punches takes pages of its region away while the daemon may use them, and tries to shorten it.
func punches(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "puncher", SQ: 64, CQ: 64, Records: 1 << 20})
	if c == nil {
		return
	}
	defer end(c, r)
	fd := withMemory(t, c)
	if fd < 0 {
		return
	}
	defer func() { _ = sys.Close(fd) }()
	if err := sys.Truncate(fd, 4096); err == nil {
		t.Error("a sealed region was truncated")
	}
	token := []byte("sixteen bytes ok")
	for i := range 20 {
		key := []byte{'p', byte(i), byte(r.IntN(256)), byte(r.IntN(256))}
		_, _ = c.Submit(&transfer.OfferOp{Key: key, Token: token, Consumers: 1, Sealed: true, Lease: 1e9, Blocks: []layout.BlockList{{NTokens: 32, IDs: []uint32{0, 1}}}})
		_, _ = c.Submit(&transfer.TakeOp{
			Key: key, Token: token, TakeID: uint64(i) + 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 1e9, Blocks: []layout.BlockList{{NTokens: 32, IDs: []uint32{2, 3}}},
		})
		if err := sys.PunchHole(fd, int64(r.IntN(16))*4096, int64(1+r.IntN(4))*4096); err != nil {
			return
		}
	}
	for range 10 {
		if _, err := c.Wait(); err != nil {
			return
		}
	}
}

// strangeDescriptors registers what is no memory, or not as memory has to be.
func strangeDescriptors(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "stranger", SQ: 16, CQ: 16, Records: 1 << 16})
	if c == nil {
		return
	}
	defer end(c, r)
	var files []*os.File
	keep := func(f *os.File, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		files = append(files, f)
	}
	pr, pw, err := os.Pipe()
	keep(pr, err)
	keep(pw, err)
	keep(os.Open("/dev/null"))
	keep(os.Open("/dev/zero"))
	keep(os.Open("/"))
	keep(os.Open("/proc/self/maps"))
	keep(os.Open(os.Args[0]))
	keep(os.CreateTemp(t.TempDir(), "file"))
	keep(c.Conn.File()) // a socket: its own
	unsealed, err := sys.MemfdCreate("unsealed", 8192, sys.MemfdOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	sparse, err := sys.MemfdCreate("sparse", 1<<30, sys.MemfdOptions{Seals: sys.SealSize})
	if err != nil {
		t.Error(err)
		return
	}
	fds := []int{unsealed, sparse, c.RingC, c.CQEvent}
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	for range 8 {
		fd := fds[r.IntN(len(fds))]
		// ring_c is sealed memory indeed; all else has to be refused.
		if _, err := c.Register(fd, uint64(1+r.IntN(3))*4096); err == nil && fd != c.RingC {
			t.Errorf("descriptor %d was registered as memory", fd)
		}
		if r.IntN(4) == 0 { // more than one, and with messages that take none
			_, _ = c.Send([]uint16{ring.CtlRegister, ring.CtlPing, ring.CtlBye, 99}[r.IntN(4)], nil, fds[:1+r.IntN(len(fds))]...)
			break
		}
		if r.IntN(8) == 0 { // with no message at all
			_ = c.SendNothing(fds[:1+r.IntN(2)]...)
			break
		}
	}
	_ = sys.Close(unsealed)
	_ = sys.Close(sparse)
	for _, f := range files {
		_ = f.Close()
	}
}

// floods asks faster than anybody reads the answers.
func floods(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "flooder", SQ: 1024, CQ: 64})
	if c == nil {
		return
	}
	defer c.Kill()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for i := range 2000 {
		e, rec := sessiontest.Encode(anyOp(r))
		e.UserData = uint64(i) + 1
		if _, err := c.Rings.Submit(e, rec); err != nil {
			break
		}
	}
	_ = c.Wake()
	for range 200 {
		if _, err := c.Send(ring.CtlPing, nil); err != nil {
			return
		}
	}
}

// neverReads lets its completions lie until nothing more is accepted.
func neverReads(t *testing.T, n *cluster.Node, r *rand.Rand) {
	c := join(t, n, sessiontest.Options{Engine: "deaf", SQ: 64, CQ: 16, Records: 1 << 16})
	if c == nil {
		return
	}
	defer end(c, r)
	for i := range 200 {
		e, rec := sessiontest.Encode(&transfer.DropOp{Key: []byte("k"), Token: []byte("sixteen bytes ok"), Timeout: 1e8})
		e.UserData = uint64(i) + 1
		if _, err := c.Rings.Submit(e, rec); err != nil {
			break
		}
		_ = c.Wake()
	}
	if c.Rings.Closed() == 0 && c.Ping() != nil {
		t.Error("a session that does not collect its completions gets no answers")
	}
}
