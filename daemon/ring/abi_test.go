package ring

import (
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// mirrors are our structs under the names that C has for them.
var mirrors = map[string]any{
	"kvpipe_ctl": Ctl{}, "kvpipe_hello": Hello{}, "kvpipe_ring_desc": Desc{}, "kvpipe_welcome": Welcome{}, "kvpipe_ack": Ack{},
	"kvpipe_register": Register{}, "kvpipe_unregister": Unregister{}, "kvpipe_revalidate": Revalidate{}, "kvpipe_layout_msg": LayoutMsg{}, "kvpipe_view": View{},
	"kvpipe_sqe": SQE{}, "kvpipe_cqe": CQE{}, "kvpipe_rec_group": RecGroup{}, "kvpipe_rec_offer": RecOffer{},
	"kvpipe_rec_extend": RecExtend{}, "kvpipe_rec_take": RecTake{}, "kvpipe_rec_key": RecKey{}, "kvpipe_result": Result{},
	"kvpipe_layer_slot": LayerSlot{}, "kvpipe_run": Run{}, "kvpipe_rec_bind": RecBind{}, "kvpipe_rec_put": RecPut{}, "kvpipe_rec_get": RecGet{},
	"kvpipe_got": Got{},
}

// numbers are constants of the headers, under their names there.
var numbers = map[string]uint64{
	"KVPIPE_ABI": ABI, "KVPIPE_ABI_MIN": ABIMin, "KVPIPE_MAGIC": Magic, "KVPIPE_CTL_MAX": CtlMax, "KVPIPE_RINGS_MAX": RingsMax,
	"KVPIPE_CTL_HELLO": CtlHello, "KVPIPE_CTL_WELCOME": CtlWelcome, "KVPIPE_CTL_ACK": CtlAck, "KVPIPE_CTL_REGISTER": CtlRegister,
	"KVPIPE_CTL_UNREGISTER": CtlUnregister, "KVPIPE_CTL_LAYOUT": CtlLayout, "KVPIPE_CTL_BYE": CtlBye, "KVPIPE_CTL_PING": CtlPing,
	"KVPIPE_CTL_INVALIDATE": CtlInvalidate, "KVPIPE_CTL_REVALIDATE": CtlRevalidate, "KVPIPE_REGISTER_INVALID": RegisterInvalid,
	"KVPIPE_SAYS_INVALID": SaysInvalid, "KVPIPE_SAYS_AGAIN": SaysAgain, "KVPIPE_SQE_AGAIN": SQEAgain,
	"KVPIPE_RING_SQ": KindSQ, "KVPIPE_RING_CQ": KindCQ, "KVPIPE_RING_RECORDS": KindRecords, "KVPIPE_RING_RESULTS": KindResults,
	"KVPIPE_RING_LAYERS": KindLayers, "KVPIPE_RING_WORK": KindWork, "KVPIPE_RING_WORK_DONE": KindWorkDone,
	"KVPIPE_OPCODE_NOP": OpNop, "KVPIPE_OPCODE_OFFER": OpOffer, "KVPIPE_OPCODE_EXTEND": OpExtend, "KVPIPE_OPCODE_SEAL": OpSeal,
	"KVPIPE_OPCODE_WITHDRAW": OpWithdraw, "KVPIPE_OPCODE_TAKE": OpTake, "KVPIPE_OPCODE_CANCEL": OpCancel, "KVPIPE_OPCODE_WATCH": OpWatch,
	"KVPIPE_OPCODE_DROP": OpDrop, "KVPIPE_LAYOUT_COMMIT": LayoutCommit, "KVPIPE_REGISTER_SKIP": RegisterSkip,
	"KVPIPE_OP_SEALED": OpSealed, "KVPIPE_OP_LAYERED": OpLayered,
	"KVPIPE_OP_RESTARTED": OpRestarted, "KVPIPE_SAYS_GRANTED": SaysGranted,
	"KVPIPE_C_MORE": FlagMore, "KVPIPE_C_FOREIGN": FlagForeign, "KVPIPE_FORM_IDS": FormIDs, "KVPIPE_FORM_RUNS": FormRuns,
	"KVPIPE_OPCODE_BIND": OpBind, "KVPIPE_OPCODE_PUT": OpPut, "KVPIPE_OPCODE_GET": OpGet, "KVPIPE_ROLE_ENDPOINT": RoleEndpoint,
	"KVPIPE_BIND_SEND": BindSend, "KVPIPE_BIND_RECV": BindRecv, "KVPIPE_BIND_OWN": BindOwn, "KVPIPE_BIND_SELECT": BindSelect,
	"KVPIPE_MATCH_NEXT": MatchNext, "KVPIPE_MATCH_ANY": MatchAny, "KVPIPE_MATCH_PREFIX": MatchPrefix, "KVPIPE_MATCH_EXACT": MatchExact,
	"KVPIPE_MATCH_KEY": MatchKey, "KVPIPE_MATCH_ITEM": MatchItem, "KVPIPE_MATCH_DECLINE": MatchDecline, "KVPIPE_C_SHORT": FlagShort,
	"KVPIPE_MAX_NAME": MaxName, "KVPIPE_MAX_META": MaxMeta, "KVPIPE_MAX_TOKENS": MaxTokens,
}

// sizes are what this package counts with, words the offsets of what it shares with the client.
var (
	sizes = map[string]int{
		"kvpipe_view": ViewSize, "kvpipe_sqe": SQESize, "kvpipe_cqe": CQESize, "kvpipe_layer_slot": LayerSlotSize, "kvpipe_result": ResultSize,
		"kvpipe_run": RunSize, "kvpipe_rec_group": RecGroupSize, "kvpipe_rec_offer": RecOfferSize, "kvpipe_rec_extend": RecExtendSize,
		"kvpipe_rec_take": RecTakeSize, "kvpipe_rec_key": RecKeySize, "kvpipe_rec_bind": RecBindSize,
		"kvpipe_rec_put": RecPutSize, "kvpipe_rec_get": RecGetSize, "kvpipe_got": GotSize, "kvpipe_ring_c": sizeRingC, "kvpipe_ring_d": sizeRingD,
	}
	words = map[string][2]int{
		"kvpipe_ring_c, sq_tail": {offSQTail, 4}, "kvpipe_ring_c, cq_head": {offCQHead, 4}, "kvpipe_ring_c, cq_waiting": {offCQWaiting, 4},
		"kvpipe_ring_c, progress": {offProgress, 8}, "kvpipe_ring_c, work_done_tail": {offWorkDoneTail, 4}, "kvpipe_ring_c, work_head": {offWorkHead, 4},
		"kvpipe_ring_d, sq_head": {offSQHead, 4}, "kvpipe_ring_d, cq_tail": {offCQTail, 4}, "kvpipe_ring_d, need_wakeup": {offNeedWakeup, 4},
		"kvpipe_ring_d, progress_wait": {offProgressWait, 8}, "kvpipe_ring_d, closed": {offClosed, 4}, "kvpipe_ring_d, heartbeat": {offHeartbeat, 8},
		"kvpipe_ring_d, work_tail": {offWorkTail, 4}, "kvpipe_ring_d, work_done_head": {offWorkDoneHead, 4},
	}
)

// TestGolden compares our structs and numbers with the golden file of the C ABI, which is compared with the headers elsewhere.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("../../capi/internal/abicheck/testdata/abi.golden")
	noErr(t, err)
	golden := strings.Split(string(text), "\n")
	want := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); !slices.Contains(golden, line) {
			t.Errorf("the C ABI has no line %s", line)
		}
	}
	for name, n := range numbers {
		want("VALUE(%s, %d)", name, n)
	}
	for name, n := range sizes {
		want("SIZE(%s, %d)", name, n)
	}
	for word, at := range words {
		want("FIELD(%s, %d, %d)", word, at[0], at[1])
	}
	for name, mirror := range mirrors {
		want("SIZE(%s, %d)", name, binary.Size(mirror))
		// Ours have no padding, and neither may theirs.
		var ours []string
		v, offset := reflect.ValueOf(mirror), 0
		for i := range v.NumField() {
			size := binary.Size(v.Field(i).Interface())
			ours = append(ours, fmt.Sprintf("%s, %d, %d", strings.ToLower(v.Type().Field(i).Name), offset, size))
			offset += size
		}
		var theirs []string
		for _, line := range golden {
			if field, ok := strings.CutPrefix(line, "FIELD("+name+", "); ok {
				theirs = append(theirs, strings.ReplaceAll(strings.TrimSuffix(field, ")"), "_", ""))
			}
		}
		if !slices.Equal(ours, theirs) {
			t.Errorf("struct %s is %q, %T is %q", name, theirs, mirror, ours)
		}
	}
}

// TestEntries compares the hand-written codecs with encoding/binary.
func TestEntries(t *testing.T) {
	b := make([]byte, 64)
	for i := range b {
		b[i] = byte(i*37 + 11)
	}
	var sqe, wantSQE SQE
	sqe.Load(b)
	var cqe, wantCQE CQE
	cqe.Load(b)
	for _, v := range []any{&wantSQE, &wantCQE} {
		if _, err := binary.Decode(b, le, v); err != nil {
			t.Fatal(err)
		}
	}
	if sqe != wantSQE || cqe != wantCQE {
		t.Fatalf("loaded %+v and %+v, want %+v and %+v", sqe, cqe, wantSQE, wantCQE)
	}
	for _, store := range []func([]byte){sqe.Store, cqe.Store} {
		got := make([]byte, 64)
		if store(got); string(got) != string(b) {
			t.Errorf("stored %x, want %x", got, b)
		}
	}
}

// TestGotFits: an item's description is never cut.
func TestGotFits(t *testing.T) {
	if GotSize+MaxMeta > MinResult {
		t.Errorf("the result of a GET has up to %d bytes, every completion can count on %d", GotSize+MaxMeta, MinResult)
	}
}

func TestDecodeRefusesReserved(t *testing.T) {
	b := Append(nil, &Ack{Reason: 3, Value: 9})
	var a Ack
	rest, err := Decode(append(b, "text"...), &a, "ack")
	if err != nil || a.Reason != 3 || a.Value != 9 || string(rest) != "text" {
		t.Fatalf("%+v %q %v", a, rest, err)
	}
	b[31] = 1
	if _, err := Decode(b, &a, "ack"); err == nil || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("a reserved field that is set: %v", err)
	}
	if _, err := Decode(b[:31], &a, "ack"); err == nil || !strings.Contains(err.Error(), "32") {
		t.Errorf("a short struct: %v", err)
	}
}

func TestString(t *testing.T) {
	for _, c := range []struct {
		field string
		want  string
		ok    bool
	}{
		{"abc\x00\x00", "abc", true}, {"abcde", "abcde", true}, {"\x00\x00", "", true}, {"é1", "é1", true},
		{"a\x00b", "", false}, {"a\xff", "", false}, {"a\nb", "", false}, {"\u202e!", "", false},
	} {
		got, err := String([]byte(c.field), "name")
		if got != c.want || err == nil != c.ok {
			t.Errorf("%q: %q, %v", c.field, got, err)
		}
	}
}

// TestGeometry looks for areas that overlap or leave their memfd, and for a results area that is too small to promise.
func TestGeometry(t *testing.T) {
	for _, s := range []Sizes{small, {SQ: 1, CQ: 16, Records: 65536, Layers: 1}, {SQ: 1024, CQ: 8192, Records: 8 << 20, Layers: 1024}} {
		g, err := NewGeometry(s)
		noErr(t, err)
		end := [2]uint64{sizeRingC, sizeRingD}
		size := [2]uint64{uint64(g.CBytes), uint64(g.DBytes)}
		for _, kind := range []uint32{KindSQ, KindRecords, KindCQ, KindLayers, KindResults} {
			for _, d := range g.Table() {
				if d.Kind != kind {
					continue
				}
				if d.Offset < end[d.Memfd] || d.Offset%64 != 0 {
					t.Errorf("%+v: ring %d begins at %d, the one before ends at %d", s, kind, d.Offset, end[d.Memfd])
				}
				end[d.Memfd] = d.Offset + uint64(d.Entries)*uint64(d.EntrySize)
			}
		}
		if end[0] > size[0] || end[1] > size[1] {
			t.Errorf("%+v: rings end at %v of %v", s, end, size)
		}
		if uint64(g.Results) < uint64(s.CQ+2)*MinResult {
			t.Errorf("%+v: %d bytes of results", s, g.Results)
		}
	}
	for _, s := range []Sizes{{}, {SQ: 3, CQ: 8, Records: 4096, Layers: 1}, {SQ: 8, CQ: 8, Records: 64, Layers: 1}, {SQ: 8, CQ: 1 << 30, Records: 4096, Layers: 1}} {
		if _, err := NewGeometry(s); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}

// memfds makes rings on two memfds, as the daemon does.
func memfds(t testing.TB, g Geometry) (fdC, fdD int) {
	t.Helper()
	fdC, err := sys.MemfdCreate("c", int64(g.CBytes), sys.MemfdOptions{})
	noErr(t, err)
	t.Cleanup(func() { _ = sys.Close(fdC) })
	fdD, err = sys.MemfdCreate("d", int64(g.DBytes), sys.MemfdOptions{})
	noErr(t, err)
	t.Cleanup(func() { _ = sys.Close(fdD) })
	return fdC, fdD
}
