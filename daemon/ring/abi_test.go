package ring

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// mirrors are our structs under the names that C has for them.
var mirrors = map[string]any{
	"kvpipe_ctl": Ctl{}, "kvpipe_hello": Hello{}, "kvpipe_ring_desc": Desc{}, "kvpipe_welcome": Welcome{}, "kvpipe_ack": Ack{},
	"kvpipe_register": Register{}, "kvpipe_unregister": Unregister{}, "kvpipe_layout_msg": LayoutMsg{}, "kvpipe_view": View{},
	"kvpipe_sqe": SQE{}, "kvpipe_cqe": CQE{}, "kvpipe_rec_group": RecGroup{}, "kvpipe_rec_offer": RecOffer{},
	"kvpipe_rec_extend": RecExtend{}, "kvpipe_rec_take": RecTake{}, "kvpipe_rec_key": RecKey{}, "kvpipe_result": Result{},
	"kvpipe_layer_slot": LayerSlot{}, "kvpipe_run": Run{},
}

// numbers are constants of the headers, under their names there.
var numbers = map[string]uint64{
	"KVPIPE_ABI": ABI, "KVPIPE_ABI_MIN": ABIMin, "KVPIPE_MAGIC": Magic, "KVPIPE_CTL_MAX": CtlMax, "KVPIPE_RINGS_MAX": RingsMax,
	"KVPIPE_CTL_HELLO": CtlHello, "KVPIPE_CTL_WELCOME": CtlWelcome, "KVPIPE_CTL_ACK": CtlAck, "KVPIPE_CTL_REGISTER": CtlRegister,
	"KVPIPE_CTL_UNREGISTER": CtlUnregister, "KVPIPE_CTL_LAYOUT": CtlLayout, "KVPIPE_CTL_BYE": CtlBye, "KVPIPE_CTL_PING": CtlPing,
	"KVPIPE_RING_SQ": KindSQ, "KVPIPE_RING_CQ": KindCQ, "KVPIPE_RING_RECORDS": KindRecords, "KVPIPE_RING_RESULTS": KindResults,
	"KVPIPE_RING_LAYERS": KindLayers, "KVPIPE_RING_WORK": KindWork, "KVPIPE_RING_WORK_DONE": KindWorkDone,
	"KVPIPE_OPCODE_NOP": OpNop, "KVPIPE_OPCODE_OFFER": OpOffer, "KVPIPE_OPCODE_EXTEND": OpExtend, "KVPIPE_OPCODE_SEAL": OpSeal,
	"KVPIPE_OPCODE_WITHDRAW": OpWithdraw, "KVPIPE_OPCODE_TAKE": OpTake, "KVPIPE_OPCODE_CANCEL": OpCancel, "KVPIPE_OPCODE_WATCH": OpWatch,
	"KVPIPE_OPCODE_DROP": OpDrop, "KVPIPE_LAYOUT_COMMIT": LayoutCommit, "KVPIPE_OP_SEALED": OpSealed, "KVPIPE_OP_LAYERED": OpLayered,
	"KVPIPE_C_MORE": FlagMore, "KVPIPE_C_FOREIGN": FlagForeign,
	"sizeof(struct kvpipe_view)": ViewSize, "sizeof(struct kvpipe_sqe)": SQESize, "sizeof(struct kvpipe_cqe)": CQESize,
	"sizeof(struct kvpipe_layer_slot)": LayerSlotSize, "sizeof(struct kvpipe_result)": ResultSize, "sizeof(struct kvpipe_run)": RunSize,
	"sizeof(struct kvpipe_rec_group)": RecGroupSize, "sizeof(struct kvpipe_rec_offer)": RecOfferSize, "sizeof(struct kvpipe_rec_extend)": RecExtendSize,
	"sizeof(struct kvpipe_rec_take)": RecTakeSize, "sizeof(struct kvpipe_rec_key)": RecKeySize,
	"sizeof(struct kvpipe_ring_c)": sizeRingC, "sizeof(struct kvpipe_ring_d)": sizeRingD,
	"offsetof(struct kvpipe_ring_c, sq_tail)": offSQTail, "offsetof(struct kvpipe_ring_c, cq_head)": offCQHead,
	"offsetof(struct kvpipe_ring_c, cq_waiting)": offCQWaiting, "offsetof(struct kvpipe_ring_c, progress)": offProgress,
	"offsetof(struct kvpipe_ring_c, work_done_tail)": offWorkDoneTail, "offsetof(struct kvpipe_ring_c, work_head)": offWorkHead,
	"offsetof(struct kvpipe_ring_d, sq_head)": offSQHead, "offsetof(struct kvpipe_ring_d, cq_tail)": offCQTail,
	"offsetof(struct kvpipe_ring_d, need_wakeup)": offNeedWakeup, "offsetof(struct kvpipe_ring_d, progress_wait)": offProgressWait,
	"offsetof(struct kvpipe_ring_d, closed)": offClosed, "offsetof(struct kvpipe_ring_d, heartbeat)": offHeartbeat,
	"offsetof(struct kvpipe_ring_d, work_tail)": offWorkTail, "offsetof(struct kvpipe_ring_d, work_done_head)": offWorkDoneHead,
}

// TestHeader compares our structs and numbers with what a C compiler makes of the header.
func TestHeader(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	include, err := filepath.Abs("../../include")
	noErr(t, err)
	var program strings.Builder
	program.WriteString("#include <stdio.h>\n#include <kvpipe.h>\n#include <kvpipe/ring.h>\nint main(void)\n{\n")
	want := map[string]uint64{}
	ask := func(expr string, value uint64) {
		if old, asked := want[expr]; asked && old == value {
			return
		}
		want[expr] = value
		fmt.Fprintf(&program, "\tprintf(\"%%llu %%s\\n\", (unsigned long long)(%s), \"%s\");\n", expr, expr)
	}
	for expr, n := range numbers {
		ask(expr, n)
	}
	fields := headerFields(t, filepath.Join(include, "kvpipe.h"), filepath.Join(include, "kvpipe/ring.h"))
	for name, mirror := range mirrors {
		v := reflect.TypeOf(mirror)
		ask("sizeof(struct "+name+")", uint64(binary.Size(mirror)))
		if len(fields[name]) != v.NumField() {
			t.Errorf("struct %s has fields %v, %s has %d", name, fields[name], v, v.NumField())
			continue
		}
		offset := 0
		for i, c := range fields[name] {
			f := v.Field(i)
			if strings.ReplaceAll(c, "_", "") != strings.ToLower(f.Name) {
				t.Errorf("field %d of struct %s is %s, of %s it is %s", i, name, c, v, f.Name)
			}
			ask(fmt.Sprintf("offsetof(struct %s, %s)", name, c), uint64(offset))
			offset += binary.Size(reflect.Zero(f.Type).Interface())
		}
	}
	program.WriteString("\treturn 0;\n}\n")

	dir := t.TempDir()
	source, binary := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	noErr(t, os.WriteFile(source, []byte(program.String()), 0o600))
	if out, err := exec.Command(cc, "-std=c11", "-I", include, "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(binary).Output()
	noErr(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d answers to %d questions", len(lines), len(want))
	}
	for _, line := range lines {
		var n uint64
		number, expr, _ := strings.Cut(line, " ")
		if _, err := fmt.Sscan(number, &n); err != nil || n != want[expr] {
			t.Errorf("%s is %s, here it is %d", expr, number, want[expr])
		}
	}
}

// headerFields lists each struct's fields in their order. Several may share a line: "uint32_t abi_min, abi_max;".
func headerFields(t *testing.T, paths ...string) map[string][]string {
	structs := regexp.MustCompile(`(?s)\nstruct (\w+) \{(.*?)\n?\}`)
	comments := regexp.MustCompile(`(?s)/\*.*?\*/`)
	declared := regexp.MustCompile(`(?:struct )?\w+ \*?([^;]+);`)
	size := regexp.MustCompile(`\[.*?\]`)
	all := map[string][]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		noErr(t, err)
		for _, s := range structs.FindAllStringSubmatch(comments.ReplaceAllString(string(text), ""), -1) {
			for _, d := range declared.FindAllStringSubmatch(s[2], -1) {
				for name := range strings.SplitSeq(size.ReplaceAllString(d[1], ""), ",") {
					all[s[1]] = append(all[s[1]], strings.TrimSpace(name))
				}
			}
		}
	}
	return all
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
