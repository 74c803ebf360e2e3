package house

import (
	"bytes"
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestProtocolExamples: the bytes in docs/protocol.md are those that the code writes, or that a golden test of it knows, and nothing that
// has an example there is left out.
func TestProtocolExamples(t *testing.T) {
	want := structExamples(t)
	for name, op := range recordExamples() {
		_, want[name] = sessiontest.Encode(op)
	}
	for _, name := range append(peerKinds(), "heartbeat with addresses", "link hello") {
		want[name] = golden(t, name)
	}
	want["ids"] = layout.AppendIDs(nil, []uint32{0, 1, 2, layout.NoBlock, 5, 4, 1000, layout.NoBlock - 1, 0})
	want["frame"] = frameGolden(t)
	want["item meta"] = metaGolden(t)
	got := examples(t)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("example %s is\n%x, want\n%x", name, got[name], want[name])
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("example %s is compared with nothing", name)
	}
}

// TestProtocolRecords: what the page shows of records, the daemon reads as it is meant.
func TestProtocolRecords(t *testing.T) {
	got := examples(t)
	for name, want := range recordExamples() {
		e, _ := sessiontest.Encode(want)
		e.RecLen = uint32(len(got[name]))
		op, err := session.Decode(&e, got[name], 1)
		if diff := cmp.Diff(want, op); err != nil || diff != "" {
			t.Errorf("example %s: %v\n%s", name, err, diff)
		}
	}
}

// recordExamples are the operations whose records the page shows.
func recordExamples() map[string]transfer.Op {
	key, token := []byte("request-1"), []byte("0123456789abcdef")
	one := []layout.BlockList{{NTokens: 40, IDs: []uint32{7, 8, 3}}}
	arena := []layout.BlockList{{NTokens: 6, IDs: []uint32{2}}}
	return map[string]transfer.Op{
		"kvpipe_rec_offer": &transfer.OfferOp{
			Key: key, Token: token, Content: []byte{0xc0, 0xde}, Trace: "t-7", Lease: 60 * transfer.Second, Consumers: 2, After: 5<<16 | 0xffff,
			Sealed: true, Blocks: one,
		},
		"kvpipe_rec_extend": &transfer.ExtendOp{
			Target: 5, After: 6 << 16, Layered: true,
			Blocks: []layout.BlockList{
				{FirstToken: 40, NTokens: 8, IDs: []uint32{3}},
				{Group: 1, NTokens: 48, IDs: []uint32{layout.NoBlock, layout.NoBlock, 20, 21, 22, 23}},
			},
		},
		"kvpipe_rec_take": &transfer.TakeOp{
			Key: key, Token: token, Content: []byte{0xc0, 0xde}, Trace: "t-7", Peer: "node-a", TakeID: 4, Part: 1, Parts: 2, After: 9 << 16,
			Layered: true, Timeout: 30 * transfer.Second, Blocks: one,
		},
		"kvpipe_rec_key":  &transfer.WatchOp{Key: key, Token: token, Trace: "t-7", Peer: "node-a", Timeout: transfer.Second},
		"kvpipe_rec_bind": &transfer.BindOp{Kind: transfer.BindSend, Name: "hidden", Token: token, Capacity: 1 << 26, Linger: 10 * transfer.Second},
		"kvpipe_rec_put": &transfer.PutOp{
			Target: 6, Form: transfer.MatchPrefix, Bytes: 6, Meta: []byte("meta"), Key: []byte{}, Tokens: []uint32{11, 12, 13}, Blocks: arena,
		},
		"kvpipe_rec_get": &transfer.GetOp{
			Target: 6, Match: transfer.MatchKey, Room: 6, Key: key, Timeout: 30 * transfer.Second, Blocks: arena,
		},
	}
}

// golden finds a message in the golden file of daemon/peer.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	_, rest, found := strings.Cut("\n"+read(t, "../../daemon/peer/testdata/messages.txt"), "\n"+name+"\n")
	if !found {
		t.Fatalf("daemon/peer/testdata/messages.txt has no %q", name)
	}
	var b strings.Builder
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, " ") {
			break
		}
		b.WriteString(strings.TrimSpace(line))
	}
	return unhex(t, b.String())
}

// frameGolden is the literal in the golden test of daemon/transport/tcp: the codec of frames is not exported.
func frameGolden(t *testing.T) []byte {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "../../daemon/transport/tcp/frame_test.go"), "const want = ")
	literal, _, ends := strings.Cut(rest, "\n\tif ")
	if !found || !ends {
		t.Fatal("daemon/transport/tcp/frame_test.go has no golden frame")
	}
	return unhex(t, strings.NewReplacer(`"`, "", "+", "", " ", "", "\n", "", "\t", "").Replace(literal))
}

func unhex(t *testing.T, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
