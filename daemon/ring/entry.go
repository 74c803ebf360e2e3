package ring

import "encoding/binary"

var le = binary.LittleEndian

// SQE is struct kvpipe_sqe.
type SQE struct {
	Op        uint8
	Flags     uint8
	Reserved0 uint16
	RecLen    uint32
	UserData  uint64
	TimeoutNS uint64
	RecOff    uint64
	Target    uint64
	Tag       uint64
	LayerSlot uint32
	Reserved1 uint32
	Reserved2 uint64
}

// Load reads the entry at the start of b, each byte once.
func (e *SQE) Load(b []byte) {
	_ = b[SQESize-1]
	w := le.Uint64(b[0:])
	e.Op, e.Flags, e.Reserved0, e.RecLen = uint8(w), uint8(w>>8), uint16(w>>16), uint32(w>>32)
	e.UserData = le.Uint64(b[8:])
	e.TimeoutNS = le.Uint64(b[16:])
	e.RecOff = le.Uint64(b[24:])
	e.Target = le.Uint64(b[32:])
	e.Tag = le.Uint64(b[40:])
	w = le.Uint64(b[48:])
	e.LayerSlot, e.Reserved1 = uint32(w), uint32(w>>32)
	e.Reserved2 = le.Uint64(b[56:])
}

// Store writes the entry to the start of b.
func (e *SQE) Store(b []byte) {
	_ = b[SQESize-1]
	b[0], b[1] = e.Op, e.Flags
	le.PutUint16(b[2:], e.Reserved0)
	le.PutUint32(b[4:], e.RecLen)
	le.PutUint64(b[8:], e.UserData)
	le.PutUint64(b[16:], e.TimeoutNS)
	le.PutUint64(b[24:], e.RecOff)
	le.PutUint64(b[32:], e.Target)
	le.PutUint64(b[40:], e.Tag)
	le.PutUint32(b[48:], e.LayerSlot)
	le.PutUint32(b[52:], e.Reserved1)
	le.PutUint64(b[56:], e.Reserved2)
}

// CQE is struct kvpipe_cqe.
type CQE struct {
	UserData  uint64
	Tag       uint64
	OpID      uint64
	Bytes     uint64
	Status    uint16
	Reason    uint16
	Flags     uint32
	Rank      uint32
	Epoch     uint32
	ResultOff uint64
	ResultLen uint32
	Reserved  uint32
}

// Load reads the entry at the start of b, each byte once.
func (e *CQE) Load(b []byte) {
	_ = b[CQESize-1]
	e.UserData = le.Uint64(b[0:])
	e.Tag = le.Uint64(b[8:])
	e.OpID = le.Uint64(b[16:])
	e.Bytes = le.Uint64(b[24:])
	e.Status = le.Uint16(b[32:])
	e.Reason = le.Uint16(b[34:])
	e.Flags = le.Uint32(b[36:])
	e.Rank = le.Uint32(b[40:])
	e.Epoch = le.Uint32(b[44:])
	e.ResultOff = le.Uint64(b[48:])
	e.ResultLen = le.Uint32(b[56:])
	e.Reserved = le.Uint32(b[60:])
}

// Store writes the entry to the start of b.
func (e *CQE) Store(b []byte) {
	_ = b[CQESize-1]
	le.PutUint64(b[0:], e.UserData)
	le.PutUint64(b[8:], e.Tag)
	le.PutUint64(b[16:], e.OpID)
	le.PutUint64(b[24:], e.Bytes)
	le.PutUint16(b[32:], e.Status)
	le.PutUint16(b[34:], e.Reason)
	le.PutUint32(b[36:], e.Flags)
	le.PutUint32(b[40:], e.Rank)
	le.PutUint32(b[44:], e.Epoch)
	le.PutUint64(b[48:], e.ResultOff)
	le.PutUint32(b[56:], e.ResultLen)
	le.PutUint32(b[60:], e.Reserved)
}

// LayerSlot is struct kvpipe_layer_slot.
type LayerSlot struct {
	UserData uint64
	Ready    uint32
	Granted  uint32
	Reserved [12]uint32
}

// Result is struct kvpipe_result: NFailed runs and TextLen bytes of text follow.
type Result struct {
	NFailed  uint32
	TextLen  uint32
	Reserved uint64
}

// Got is struct kvpipe_got: MetaLen bytes of meta follow.
type Got struct {
	Item, Bytes, Capacity, Matched uint64
	MetaLen, Reserved0             uint32
	Reserved                       uint64
}

// Run is struct kvpipe_run.
type Run struct{ Group, First, Count uint32 }
