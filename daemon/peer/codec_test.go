package peer

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/reuse"
)

// alike is for messages: a layout is its encoded form, which the digest names.
var alike = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b *layout.Layout) bool { return a.Digest() == b.Digest() })}

var update = flag.Bool("update", false, "write testdata/messages.txt")

func TestEveryMessageComesBackAsItWas(t *testing.T) {
	for _, m := range samples() {
		comesBack(t, m)
	}
	rapid.Check(t, func(t *rapid.T) { comesBack(t, drawMsg(t)) })
}

type tb interface{ Fatalf(string, ...any) }

func comesBack(t tb, m transfer.Msg) {
	for _, runs := range []bool{false, true} {
		comesBackAs(t, m, runs)
	}
}

func comesBackAs(t tb, m transfer.Msg, runs bool) {
	const epoch = 1 << 63
	wire, err := appendMsg([]byte("before"), epoch, m, runs)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	wire = wire[len("before"):]
	f, got, err := read(wire)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	if diff := cmp.Diff(m, got, alike); diff != "" || f.epoch != epoch || f.kind != kindOf(m) {
		t.Fatalf("%T, epoch %d, kind %d: %s", m, f.epoch, f.kind, diff)
	}
	// What is written is what generated code writes of the same message, and it knows every field.
	var generated peerpb.Frame
	if err := proto.Unmarshal(wire[4:], &generated); err != nil {
		t.Fatalf("%T: generated code: %v", m, err)
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&generated)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	if len(unknown(&generated)) > 0 {
		t.Fatalf("%T has fields that peer.proto does not: %v", m, unknown(&generated))
	}
	if !bytes.Equal(again, wire[4:]) {
		t.Fatalf("%T: generated code writes\n%x\nnot\n%x", m, again, wire[4:])
	}
}

// unknown lists messages with fields that generated code does not know.
func unknown(m proto.Message) (found []string) {
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		if len(m.GetUnknown()) > 0 {
			found = append(found, string(m.Descriptor().FullName()))
		}
		m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.IsList() && fd.Message() != nil:
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case fd.Message() != nil:
				walk(v.Message())
			}
			return true
		})
	}
	walk(m.ProtoReflect())
	return found
}

func TestKindsAreThoseOfPeerProto(t *testing.T) {
	fields := (&peerpb.Frame{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	want := map[protowire.Number]bool{kindHello: true, kindHeartbeat: true, kindClose: true}
	for _, m := range samples() {
		want[kindOf(m)] = true
	}
	if fields.Len() != len(want) {
		t.Errorf("peer.proto has %d kinds, the code %d", fields.Len(), len(want))
	}
	for i := range fields.Len() {
		if fd := fields.Get(i); !want[fd.Number()] {
			t.Errorf("kind %d, %s, is in peer.proto alone", fd.Number(), fd.Name())
		}
	}
}

// A later version of the protocol may say more in every message.
func TestFieldsThatAreNotKnownArePassedOver(t *testing.T) {
	for _, m := range samples() {
		wire, err := appendMsg(nil, 1, m, false)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := read(wire)
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.Clone(f.body)
		for _, more := range [][]byte{
			protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), 7),
			protowire.AppendBytes(protowire.AppendTag(nil, 101, protowire.BytesType), []byte("new")),
			protowire.AppendFixed64(protowire.AppendTag(nil, 102, protowire.Fixed64Type), 7),
		} {
			body = append(more, body...)
		}
		got, err := decode(f.kind, body, nil)
		if diff := cmp.Diff(m, got, alike); err != nil || diff != "" {
			t.Errorf("%T: %v %s", m, err, diff)
		}
	}
}

func TestAReasonOfANewerPeerKeepsItsText(t *testing.T) {
	var w writer
	w.uint(1, 9)
	o := w.begin(2, 0)
	w.uint(1, 4000)
	w.text(2, "something new")
	w.end(o)
	m, err := decode(kindAbort, w.b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := m.(*transfer.MsgAbort).Cause; c != (transfer.Cause{Reason: transfer.Unavailable, Text: "something new"}) {
		t.Errorf("%+v", c)
	}
}

// The lengths of messages inside messages are guessed first: wrong guesses of every size must not show.
func TestNestedMessagesMoveWhenTheirLengthWasGuessedWrong(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 16383, 16384, 70000} {
		for _, guess := range []int{0, 127, 128, 16383, 16384, 1 << 21} {
			w := writer{b: []byte("x")}
			o := w.begin(3, guess)
			w.b = append(w.b, bytes.Repeat([]byte{'y'}, n)...)
			w.end(o)
			w.b = append(w.b, 'z')
			want := append(protowire.AppendBytes(protowire.AppendTag([]byte("x"), 3, protowire.BytesType), bytes.Repeat([]byte{'y'}, n)), 'z')
			if !bytes.Equal(w.b, want) {
				t.Errorf("%d bytes, guessed %d: %.40x, want %.40x", n, guess, w.b, want)
			}
		}
	}
}

func TestOversizeMessagesAreRefusedWhole(t *testing.T) {
	before := []byte("before")
	got, err := appendMsg(before, 1, &transfer.MsgGrant{HasInline: true, Inline: make([]byte, maxFrame)}, false)
	if err == nil || !strings.Contains(err.Error(), "limit") || string(got) != "before" {
		t.Errorf("%q, %v", got[:min(20, len(got))], err)
	}
}

// The largest take that a client can make, with ids that take five bytes each, fits a frame.
func TestTheLargestTakeFitsAFrame(t *testing.T) {
	ids := make([]uint32, layout.MaxIDs)
	for i := range ids {
		ids[i] = uint32(i&1) * (layout.NoBlock - 1)
	}
	m := samples()[1].(*transfer.MsgTake)
	m.Blocks = []layout.BlockList{{NTokens: 1, IDs: ids}}
	wire, err := appendMsg(nil, 1, m, false)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := read(wire)
	if err != nil || !slices.Equal(got.(*transfer.MsgTake).Blocks[0].IDs, ids) {
		t.Fatalf("%d bytes: other ids, or %v", len(wire), err)
	}
	m.Blocks = append(m.Blocks, layout.BlockList{Group: 1, IDs: ids[:1]})
	if wire, err = appendMsg(wire[:0], 1, m, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err = read(wire); !isMalformed(err) {
		t.Fatalf("one id too many: %v", err)
	}
}

// TestAReservedFieldIsPassedOver: what a take says under the number of lists of single ranks is not kept, so all ids that it has are in the
// lists that are counted.
func TestAReservedFieldIsPassedOver(t *testing.T) {
	want := samples()[1]
	wire, err := appendMsg(nil, 1, want, false)
	if err != nil {
		t.Fatal(err)
	}
	f := new(peerpb.Frame)
	if err := proto.Unmarshal(wire[4:], f); err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(f.GetTake())
	if err != nil {
		t.Fatal(err)
	}
	w := writer{b: body}
	putBy(&w, 14, map[uint32][]layout.BlockList{1: {{NTokens: 1, IDs: []uint32{7}}}})
	if len(w.b) == len(body) {
		t.Fatal("nothing was added")
	}
	got, err := decode(kindTake, w.b, nil)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestRunsAreShort: a list of adjacent ids costs the same however long it is, to a peer that knows that form, and comes back without
// memory of its own.
func TestRunsAreShort(t *testing.T) {
	m := samples()[1].(*transfer.MsgTake)
	var size [2]int
	for i, n := range []uint32{1000, 400_000} {
		m.Blocks = []layout.BlockList{{NTokens: n, IDs: layout.Adjacent(70_000, n)}}
		comesBack(t, m)
		wire, err := appendMsg(nil, 1, m, true)
		if err != nil {
			t.Fatal(err)
		}
		size[i] = len(wire)
		if _, got, err := read(wire); err != nil || !layout.IsAdjacent(got.(*transfer.MsgTake).Blocks[0].IDs) {
			t.Errorf("%d ids: %v", n, err)
		}
	}
	if size[1] > size[0]+8 {
		t.Errorf("1,000 ids are %d bytes, 400,000 are %d", size[0], size[1])
	}
}

// The bytes on the wire never change: other versions read them. docs/protocol.md quotes the file.
func TestGoldenBytes(t *testing.T) {
	var b strings.Builder
	for _, m := range samples() {
		wire, err := appendMsg(nil, 0x1122334455667788, m, false)
		if err != nil {
			t.Fatal(err)
		}
		dump(&b, string((&peerpb.Frame{}).ProtoReflect().Descriptor().Fields().ByNumber(kindOf(m)).Name()), wire)
	}
	hello, err := appendHello(nil, &peerpb.Hello{
		ProtoMin: 1, ProtoMax: 1, Node: "decode-1", Incarnation: 5, Advertise: "10.0.0.2:7650", Version: "0.1.0", Transports: []string{"local", "tcp"}, Streams: 2,
		DataPlain: true, LinkSecret: bytes.Repeat([]byte{0xa5}, secretSize), Epoch: 0x1122334455667788, LostEpoch: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	beat, _ := appendHeartbeat(nil, 0x1122334455667788, 12345, true)
	moved, _ := appendAddresses(nil, 0x1122334455667788, 12345, encodeAddresses([]Address{at("eth0", "10.0.0.2", 100000), at("eth1", "fd00::2", 0)}))
	end, _ := appendClose(nil, 0x1122334455667788, uint32(transfer.Unavailable), "daemon of node \"a\" is shutting down")
	link := linkHello{index: 1, epoch: 0x1122334455667788, serial: 2}
	dump(&b, "hello", hello)
	dump(&b, "heartbeat", beat)
	dump(&b, "heartbeat with addresses", moved)
	dump(&b, "close", end)
	dump(&b, "link hello", link.append(nil, bytes.Repeat([]byte{0xa5}, secretSize)))
	path := filepath.Join("testdata", "messages.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("wire bytes changed (-want +got), which other versions do not understand:\n%s", diff)
	}
}

func dump(b *strings.Builder, name string, wire []byte) {
	fmt.Fprintf(b, "%s\n", name)
	for len(wire) > 0 {
		n := min(32, len(wire))
		fmt.Fprintf(b, "  %s\n", hex.EncodeToString(wire[:n]))
		wire = wire[n:]
	}
}

// TestPayloadOfAGrant: it lies in a buffer that somebody put back if there is one, and never in the frame.
func TestPayloadOfAGrant(t *testing.T) {
	wire, err := appendMsg(nil, 1, &transfer.MsgGrant{Xfer: 1, HasInline: true, Inline: []byte("payload")}, false)
	if err != nil {
		t.Fatal(err)
	}
	old := make([]byte, 100)
	known := &stores{payloads: new(reuse.Buffers)}
	known.payloads.Put(old)
	for _, reused := range []bool{true, false} {
		f, _, err := read(wire)
		if err != nil {
			t.Fatal(err)
		}
		body := bytes.Clone(f.body)
		m, err := decode(f.kind, body, known)
		if err != nil {
			t.Fatal(err)
		}
		clear(body)
		got := m.(*transfer.MsgGrant).Inline
		if string(got) != "payload" || (&got[0] == &old[0]) != reused {
			t.Errorf("%q, in the buffer that was put back: %v, want %v", got, &got[0] == &old[0], reused)
		}
	}
}

// TestNumbersMayComeOneByOne: who writes a list without packing it means the same, also where part of it is packed.
func TestNumbersMayComeOneByOne(t *testing.T) {
	body := []byte{0x08, 1}
	for _, said := range [][]byte{{0x20, 7}, {0x20, 0x80, 1}, {0x22, 2, 9, 8}, {0x20, 5}} {
		body = append(body, said...)
	}
	m, err := decode(kindResend, body, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.(*transfer.MsgResend).Slices, []uint32{7, 128, 9, 8, 5}; !slices.Equal(got, want) {
		t.Errorf("slices %v, want %v", got, want)
	}
}
