package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The encoded form: a version byte; the number of views and each view's fields; the number of fingerprint fields and
// each key and value. Numbers are unsigned varints; texts are a length and bytes. A layout has exactly one encoded
// form, so the digest of that form identifies the layout.

const (
	codecVersion = 1
	maxView      = 7*10 + 6*5 + 1 + MaxPart
	maxField     = 4 + MaxFieldKey + MaxFieldValue
	// MaxEncoded bounds the length of an encoded layout.
	MaxEncoded = 16 + MaxViews*maxView + MaxFingerprint*maxField
)

// Encode returns the canonical form, which Decode reads.
func (l *Layout) Encode() []byte {
	b := make([]byte, 0, 16+len(l.views)*48)
	b = append(b, codecVersion)
	b = binary.AppendUvarint(b, uint64(len(l.views)))
	for i := range l.views {
		v := &l.views[i]
		for _, n := range v.wide() {
			b = binary.AppendUvarint(b, *n)
		}
		b = binary.AppendUvarint(b, uint64(v.Region))
		b = binary.AppendUvarint(b, uint64(v.Kind))
		for _, n := range v.narrow() {
			b = binary.AppendUvarint(b, uint64(*n))
		}
		b = appendText(b, v.Part)
	}
	return l.appendFields(b)
}

func (l *Layout) appendFields(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(l.fingerprint)))
	for _, f := range l.fingerprint {
		b = appendText(appendText(b, f.Key), f.Value)
	}
	return b
}

func (v *View) wide() [6]*uint64 {
	return [...]*uint64{&v.Base, &v.NumBlocks, &v.BlockStride, &v.TokenStride, &v.HeadStride, &v.ContentBytes}
}

func (v *View) narrow() [6]*uint32 {
	return [...]*uint32{&v.Layer, &v.Group, &v.BlockSize, &v.FirstHead, &v.Heads, &v.TotalHeads}
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode reads what Encode wrote and validates it as New does, but without looking at regions. Anything else is an
// error, including another encoding of the same layout.
func Decode(b []byte) (*Layout, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("layout: %d bytes; must be at most %d", len(b), MaxEncoded)
	}
	r := reader{b: b}
	if v := r.byte(); !r.bad && v != codecVersion {
		return nil, fmt.Errorf("layout: version %d; this daemon reads version %d", v, codecVersion)
	}
	views := make([]View, r.count(MaxViews))
	for i := range views {
		v := &views[i]
		for _, n := range v.wide() {
			*n = r.uvarint(1<<64 - 1)
		}
		v.Region = RegionID(r.uvarint(1<<64 - 1))
		v.Kind = Kind(r.uvarint(1<<32 - 1))
		for _, n := range v.narrow() {
			*n = uint32(r.uvarint(1<<32 - 1))
		}
		v.Part = r.text(MaxPart)
	}
	fields := make([]Field, r.count(MaxFingerprint))
	for i := range fields {
		fields[i] = Field{r.text(MaxFieldKey), r.text(MaxFieldValue)}
	}
	if r.bad || len(r.b) != 0 {
		return nil, fmt.Errorf("layout: malformed at byte %d of %d", len(b)-len(r.b), len(b))
	}
	l, err := New(views, fields, nil)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(l.Encode(), b) {
		return nil, fmt.Errorf("layout: not in canonical form")
	}
	return l, nil
}

// reader takes values off the front of b. After malformed input it is bad and yields zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of things that take at least two bytes each.
func (r *reader) count(most int) int {
	n := r.uvarint(uint64(most))
	if n > uint64(len(r.b))/2 {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *reader) text(most int) string {
	n := r.uvarint(uint64(most))
	if n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
