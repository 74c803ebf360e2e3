package ring

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ctl is struct kvpipe_ctl, the header of every control message.
type Ctl struct {
	Magic    uint32
	Type     uint16
	Flags    uint16
	Len      uint32
	Seq      uint32
	Reserved [2]uint64
}

// Hello is struct kvpipe_hello.
type Hello struct {
	ABIMin, ABIMax                   uint32
	Features                         uint64
	Role                             uint32
	TPRank, PPRank, TPWorld, PPWorld uint32
	SQEntries, CQEntries             uint32
	PID                              uint32
	ArenaBytes                       uint32
	LayerSlots                       uint32
	Session                          uint64
	Secret                           [32]byte
	Engine, Instance                 [128]byte
	Library                          [64]byte
	Reserved                         [352]byte
}

// Desc is struct kvpipe_ring_desc.
type Desc struct {
	Kind      uint32
	Memfd     uint32
	Offset    uint64
	Entries   uint32
	EntrySize uint32
}

// Welcome is struct kvpipe_welcome.
type Welcome struct {
	ABI, Epoch                                uint32
	Features                                  uint64
	Session                                   uint64
	Secret                                    [32]byte
	RingCBytes, RingDBytes                    uint64
	NRings, Rank                              uint32
	Rings                                     [RingsMax]Desc
	MaxPinnedBytes                            uint64
	Ops                                       uint64
	MaxIDs, MaxViews, MaxRegions, MaxInflight uint32
	Node                                      [256]byte
	Instance, Advertise                       [128]byte
	Daemon                                    [64]byte
	Says                                      uint64
	Reserved                                  [200]byte
}

// Ack is struct kvpipe_ack; TextLen bytes of text follow.
type Ack struct {
	Reason   uint32
	TextLen  uint32
	Value    uint64
	Reserved [2]uint64
}

// Register is struct kvpipe_register.
type Register struct {
	Bytes    uint64
	Kind     uint32
	Flags    uint32
	Reserved [2]uint64
}

// Unregister is struct kvpipe_unregister, which is the body of INVALIDATE, too.
type Unregister struct {
	Region    uint64
	TimeoutNS uint64
	Reserved  [2]uint64
}

// Revalidate is struct kvpipe_revalidate.
type Revalidate struct {
	Region   uint64
	Reserved [3]uint64
}

// LayoutMsg is struct kvpipe_layout_msg; NViews views and NFields fields follow.
type LayoutMsg struct {
	Flags      uint32
	NViews     uint32
	NFields    uint32
	TotalViews uint32
	Reserved   [2]uint64
}

// View is struct kvpipe_view.
type View struct {
	Region       uint64
	Base         uint64
	NumBlocks    uint64
	BlockStride  uint64
	TokenStride  uint64
	HeadStride   uint64
	ContentBytes uint64
	Layer        uint32
	Group        uint32
	Kind         uint32
	BlockSize    uint32
	FirstHead    uint32
	Heads        uint32
	TotalHeads   uint32
	Part         [16]byte
	Reserved     [7]uint32
}

// Append appends one of this package's structs in its wire form.
func Append(b []byte, v any) []byte {
	b, err := binary.Append(b, le, v)
	if err != nil {
		panic(fmt.Sprintf("ring: %v", err)) // not one of our structs
	}
	return b
}

// Decode reads one of this package's structs from the start of b into v, a pointer, and returns the rest of b. It
// refuses reserved fields that are not zero. name is what errors call the struct.
func Decode(b []byte, v any, name string) (rest []byte, err error) {
	n, err := binary.Decode(b, le, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %d bytes, want at least %d", name, len(b), binary.Size(v))
	}
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		if f := s.Type().Field(i).Name; strings.HasPrefix(f, "Reserved") && !s.Field(i).IsZero() {
			return nil, fmt.Errorf("%s: field %s is not zero: it is reserved", name, strings.ToLower(f))
		}
	}
	return b[n:], nil
}

// String reads a NUL-padded text field: printable UTF-8, and nothing but NUL after the first NUL.
func String(field []byte, name string) (string, error) {
	text, pad, _ := bytes.Cut(field, []byte{0})
	if len(bytes.Trim(pad, "\x00")) != 0 {
		return "", fmt.Errorf("%s: bytes follow the terminating NUL", name)
	}
	if err := CheckText(text, name); err != nil {
		return "", err
	}
	return string(text), nil
}

// CheckText refuses text that is not printable UTF-8 and so could not be shown in a log.
func CheckText(text []byte, name string) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("%s: not valid UTF-8", name)
	}
	for _, r := range string(text) {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s: %q has the unprintable character %U", name, text, r)
		}
	}
	return nil
}
