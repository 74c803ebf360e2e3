package peer

import (
	"math"
	"unicode/utf8"

	"github.com/kvpipe/kvpipe/internal/reuse"
	"google.golang.org/protobuf/encoding/protowire"
)

// Machine messages are written and read field by field, without the generated types in between. A small hand-over is
// four of them, and generated code took most of its time. Tests make sure that both agree.

// writer appends the fields of a protobuf message. It omits zero values, as proto3 does.
type writer struct {
	b    []byte
	runs bool // write only the first id of a run
}

func (w *writer) uint(num protowire.Number, v uint64) {
	if v != 0 {
		w.b = protowire.AppendVarint(protowire.AppendTag(w.b, num, protowire.VarintType), v)
	}
}

func (w *writer) bool(num protowire.Number, v bool) {
	if v {
		w.uint(num, 1)
	}
}

func (w *writer) bytes(num protowire.Number, v []byte) {
	if len(v) > 0 {
		w.element(num, v)
	}
}

// element writes one element of a repeated bytes field, which may be empty.
func (w *writer) element(num protowire.Number, v []byte) {
	w.b = protowire.AppendBytes(protowire.AppendTag(w.b, num, protowire.BytesType), v)
}

func (w *writer) text(num protowire.Number, v string) {
	if v != "" {
		w.b = protowire.AppendString(protowire.AppendTag(w.b, num, protowire.BytesType), v)
	}
}

// open is an embedded message whose length is not known yet.
type open struct{ at, width int }

// begin starts an embedded message. If guess is about its length, end need not move it.
func (w *writer) begin(num protowire.Number, guess int) open {
	w.b = protowire.AppendTag(w.b, num, protowire.BytesType)
	o := open{len(w.b), protowire.SizeVarint(uint64(guess))}
	for range o.width {
		w.b = append(w.b, 0)
	}
	return o
}

func (w *writer) end(o open) {
	from := o.at + o.width
	n := len(w.b) - from
	if width := protowire.SizeVarint(uint64(n)); width != o.width {
		for range width - o.width { // none when it becomes shorter
			w.b = append(w.b, 0)
		}
		copy(w.b[o.at+width:], w.b[from:from+n])
		w.b = w.b[:o.at+width+n]
	}
	protowire.AppendVarint(w.b[:o.at], uint64(n))
}

// fields walks through the fields of a protobuf message. The caller reads a field that next found with the method of
// its type. A field that is not read is skipped, since a newer peer may say more. The first error ends the walk.
type fields struct {
	what   string // the message, for errors
	num    protowire.Number
	typ    protowire.Type
	b      []byte
	unread bool
	err    error
}

func (f *fields) next() bool {
	if f.unread {
		f.advance(protowire.ConsumeFieldValue(f.num, f.typ, f.b))
	}
	if f.err != nil || len(f.b) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.b)
	f.advance(n)
	f.num, f.typ, f.unread = num, typ, f.err == nil
	return f.unread
}

// advance skips n bytes. A negative n is an error of protowire.
func (f *fields) advance(n int) {
	f.unread = false
	if f.err != nil {
		return
	}
	if n < 0 {
		f.err = malformed("%s, field %d: %v", f.what, f.num, protowire.ParseError(n))
		return
	}
	f.b = f.b[n:]
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = malformed(format, args...)
	}
}

func (f *fields) is(typ protowire.Type) bool {
	if f.typ != typ {
		f.fail("%s, field %d: wire type %d, want %d", f.what, f.num, f.typ, typ)
	}
	return f.err == nil
}

func (f *fields) uint() uint64 {
	if !f.is(protowire.VarintType) {
		return 0
	}
	v, n := protowire.ConsumeVarint(f.b)
	f.advance(n)
	return v
}

func (f *fields) uint32() uint32 {
	v := f.uint()
	if v > math.MaxUint32 {
		f.fail("%s, field %d: %d does not fit 32 bits", f.what, f.num, v)
	}
	return uint32(v)
}

func (f *fields) bool() bool { return f.uint() != 0 }

// bytes returns the value of a bytes field. It lies in the message's buffer.
func (f *fields) bytes(name string, limit int) []byte {
	if !f.is(protowire.BytesType) {
		return nil
	}
	v, n := protowire.ConsumeBytes(f.b)
	f.advance(n)
	if len(v) > limit {
		f.fail("%s.%s of %d bytes, limit %d", f.what, name, len(v), limit)
		return nil
	}
	return v
}

// own is bytes with a copy; nil if empty.
func (f *fields) own(name string, limit int) []byte {
	return append([]byte(nil), f.bytes(name, limit)...)
}

func (f *fields) text(name string, limit int, known *stores) string {
	b := f.bytes(name, limit)
	if !utf8.Valid(b) {
		f.fail("%s.%s is not UTF-8", f.what, name)
		return ""
	}
	return known.name(b)
}

// message returns the walk through an embedded message.
func (f *fields) message(name string) fields {
	return fields{what: name, b: f.bytes(name, maxFrame), err: f.err}
}

// uints appends a repeated number, packed or not.
func (f *fields) uints(name string, dst []uint32, limit int) []uint32 {
	if f.typ != protowire.BytesType {
		dst = append(dst, f.uint32())
	} else {
		in := fields{what: f.what, num: f.num, typ: protowire.VarintType, b: f.bytes(name, maxFrame), err: f.err}
		for len(in.b) > 0 && in.err == nil && len(dst) <= limit {
			dst = append(dst, in.uint32())
		}
		f.err = in.err
	}
	if len(dst) > limit {
		f.fail("%s.%s has more than %d elements", f.what, name, limit)
	}
	return dst
}

// stores has what would be garbage after each message: the strings that a peer says again and again, and the stock from
// which payloads get their buffers. The driver puts these back. A nil *stores has nothing.
type stores struct {
	names    map[string]string
	payloads *reuse.Buffers
}

// maxNames bounds what a peer can make this node remember.
const maxNames = 64

func (s *stores) name(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s == nil {
		return string(b)
	}
	if name, ok := s.names[string(b)]; ok {
		return name
	}
	if len(s.names) >= maxNames || s.names == nil {
		s.names = make(map[string]string)
	}
	name := string(b)
	s.names[name] = name
	return name
}

// payload returns a copy of b; nil if it is empty.
func (s *stores) payload(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	var from *reuse.Buffers
	if s != nil {
		from = s.payloads
	}
	p := from.Get(len(b))
	copy(p, b)
	return p
}
