package house

import (
	"bytes"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/ring"
)

// structExamples are the structs of ring.h that the page shows, as the code writes them.
func structExamples(t *testing.T) map[string][]byte {
	t.Helper()
	g, err := ring.NewGeometry(ring.Sizes{SQ: 1024, CQ: 4096, Records: 8 << 20, Layers: 1024})
	if err != nil {
		t.Fatal(err)
	}
	secret := [32]byte(bytes.Repeat([]byte{0xa5}, 32))
	hello := ring.Hello{
		ABIMin: ring.ABIMin, ABIMax: ring.ABI, Role: 1, TPRank: 1, TPWorld: 2, PPWorld: 1, SQEntries: g.SQ, CQEntries: g.CQ, PID: 4711,
		ArenaBytes: g.Records, LayerSlots: g.Layers, Session: 8<<32 | 3, Secret: secret,
	}
	welcome := ring.Welcome{
		ABI: ring.ABI, Epoch: 9, Session: 9<<32 | 1, Secret: secret, RingCBytes: uint64(g.CBytes), RingDBytes: uint64(g.DBytes),
		NRings: uint32(len(g.Table())), Rank: 1, MaxPinnedBytes: 1 << 40, Ops: ring.Ops, MaxIDs: 1 << 20, MaxViews: 4096, MaxRegions: 1024, MaxInflight: 4096,
		Says: ring.SaysGranted | ring.SaysInvalid | ring.SaysAgain,
	}
	copy(welcome.Rings[:], g.Table())
	view := ring.View{
		Region: 1<<32 | 7, Base: 4096, NumBlocks: 512, BlockStride: 65536, TokenStride: 4096, HeadStride: 512, ContentBytes: 512, Layer: 3, Kind: 1,
		BlockSize: 16, FirstHead: 8, Heads: 8, TotalHeads: 16,
	}
	copy(hello.Engine[:], "decode-0")
	copy(hello.Instance[:], "a1")
	copy(hello.Library[:], "0.1.0")
	copy(welcome.Node[:], "node-a")
	copy(welcome.Instance[:], "a1")
	copy(welcome.Advertise[:], "10.0.0.1:7650")
	copy(welcome.Daemon[:], "0.1.0")
	copy(view.Part[:], "kv")
	const refused, failed, item = "region 0x100000007 has work in flight", "the lease ended", "meta"
	run := ring.Run{Group: 1, First: 40, Count: 3}
	out := map[string][]byte{
		"kvpipe_ctl":        ring.Append(nil, &ring.Ctl{Magic: ring.Magic, Type: ring.CtlPing, Seq: 7}),
		"kvpipe_hello":      ring.Append(nil, &hello),
		"kvpipe_welcome":    ring.Append(nil, &welcome),
		"kvpipe_ring_desc":  ring.Append(nil, &g.Table()[0]),
		"kvpipe_ack":        append(ring.Append(nil, &ring.Ack{Reason: 6, TextLen: uint32(len(refused))}), refused...),
		"kvpipe_register":   ring.Append(nil, &ring.Register{Bytes: 1 << 30, Kind: ring.RegisterMemfd, Flags: 64}),
		"kvpipe_unregister": ring.Append(nil, &ring.Unregister{Region: 1<<32 | 7, TimeoutNS: 5e9}),
		"kvpipe_revalidate": ring.Append(nil, &ring.Revalidate{Region: 1<<32 | 7}),
		"kvpipe_layout_msg": append(ring.Append(nil, &ring.LayoutMsg{Flags: ring.LayoutCommit, NFields: 1, TotalViews: 32}), "\x05\x00\x08\x00dtypebfloat16"...),
		"kvpipe_view":       ring.Append(nil, &view),
		"kvpipe_sqe":        ring.Append(nil, &ring.SQE{Op: ring.OpWithdraw, UserData: 7, TimeoutNS: 5e9, Target: 5}),
		"kvpipe_cqe":        ring.Append(nil, &ring.CQE{UserData: 7, OpID: 12, Status: 1, Flags: ring.FlagMore, Epoch: 9}),
		"kvpipe_rec_group":  append(ring.Append(nil, &ring.RecGroup{NTokens: 40, Form: ring.FormRuns, Count: 2}), "\x07\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00"...),
		"kvpipe_run":        ring.Append(nil, &run),
		"kvpipe_result":     append(ring.Append(ring.Append(nil, &ring.Result{NFailed: 1, TextLen: uint32(len(failed))}), &run), failed...),
		"kvpipe_got":        append(ring.Append(nil, &ring.Got{Item: 12, Bytes: 6, Capacity: 1 << 26, Matched: 3, MetaLen: uint32(len(item))}), item...),
	}
	indexPages(t, g, out)
	return out
}

// indexPages lets both ends use their rings once, and reads what they left in memory.
func indexPages(t *testing.T, g ring.Geometry, out map[string][]byte) {
	t.Helper()
	c, d := make([]byte, g.CBytes), make([]byte, g.DBytes)
	client, err := ring.NewClient(g.Table(), c, d)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	submissions, completions := ring.NewSubmissions(&g, c, d), ring.NewCompletions(&g, c, d)
	words, layers := ring.NewWords(c, d), ring.NewLayers(&g, d)
	for i := range 3 {
		_, err := client.Submit(ring.SQE{Op: ring.OpNop, UserData: uint64(i + 1)}, nil)
		check(err)
	}
	for range 3 {
		var e ring.SQE
		_, err := submissions.Next(&e)
		check(err)
		submissions.Advance()
	}
	for i := range 2 {
		check(completions.Put(&ring.CQE{UserData: uint64(i + 1), Status: 1}, nil, false))
		client.Next()
	}
	client.Progress(5<<16 | 0xffff)
	words.WaitProgress(6 << 16)
	words.Beat(4711)
	if !client.Arm() || !submissions.Arm() {
		t.Fatal("one side has something to do")
	}
	check(layers.Set(0, 7, 3))
	check(layers.Grant(0, 7))
	out["kvpipe_ring_c"], out["kvpipe_ring_d"] = c[:384], d[:512]
	for _, at := range g.Table() {
		if at.Kind == ring.KindLayers {
			out["kvpipe_layer_slot"] = d[at.Offset : at.Offset+ring.LayerSlotSize]
		}
	}
}
