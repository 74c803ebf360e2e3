// Package layout says how a rank's KV cache lies in registered memory (views, block lists, fingerprints) and who
// holds which blocks. It is pure: it knows offsets and ids, never addresses, files or clocks.
package layout

// NoBlock marks a position of a block list without a block (a freed sliding-window block, for example).
const NoBlock = ^uint32(0)

// Limits of one layout and one operation. KVPIPE_MAX_* in the C header are the same numbers.
const (
	MaxIDs         = 1 << 20
	MaxGroups      = 64
	MaxViews       = 4096
	MaxFingerprint = 64
	MaxPart        = 15      // bytes of a part's name
	MaxFieldKey    = 128     // bytes of a fingerprint key
	MaxFieldValue  = 256     // bytes of a fingerprint value
	MaxBlocks      = 1 << 26 // blocks of a layout; blocks that overlay each other count once
	MaxBlockSize   = 1 << 20 // tokens of a block
	MaxHeads       = 1 << 16 // kv heads of a model
)

// RegionID names registered memory within a session: index in the low 32 bits, generation in the high 32. 0 is none.
type RegionID uint64

// Kind says how the blocks of a view move.
type Kind uint32

const (
	Paged  Kind = 1 // blocks of BlockSize tokens, any token and head range
	Opaque Kind = 2 // blocks that only move whole (SSM state)
)

// View is how one layer's part lies in a region. The element (block b, token slot t, head h) is the ContentBytes
// bytes at Base + b*BlockStride + t*TokenStride + (h-FirstHead)*HeadStride.
type View struct {
	Region       RegionID
	Base         uint64
	NumBlocks    uint64
	BlockStride  uint64
	TokenStride  uint64
	HeadStride   uint64
	ContentBytes uint64 // of one token of one head (Paged), of one block (Opaque)
	Layer        uint32 // the model's own number
	Group        uint32
	Kind         Kind
	BlockSize    uint32 // tokens per block
	FirstHead    uint32 // model-wide
	Heads        uint32
	TotalHeads   uint32
	Part         string // "kv", "k", "v", "index"; at most 15 bytes
}

// BlockList names blocks of one group, for the tokens [FirstToken, FirstToken+NTokens). IDs[i] is the block of the
// sequence's block number FirstToken/BlockSize + i. Lists of opaque groups are paired by position and ignore tokens.
// IDs is never written after the list was made.
type BlockList struct {
	Group      uint32
	FirstToken uint32
	NTokens    uint32
	IDs        []uint32
}

// Run is a contiguous run of block ids of one group.
type Run struct{ Group, First, Count uint32 }

// Field is one field of a fingerprint.
type Field struct{ Key, Value string }

// Layout is a validated, immutable set of views with its fingerprint. Safe for concurrent use.
type Layout struct {
	views       []View
	groups      []Group // ascending ids
	layers      []uint32
	domains     []uint64 // blocks of each hold domain
	fingerprint []Field
	digest      [32]byte
	fields      [32]byte // digest of the fingerprint alone
	encoded     int

	cuts []piece // the pieces of the views, for Extents; nil for peers' layouts, whose memory is not here
}

// Group is a group of a layout. Its block ids index every one of its views.
type Group struct {
	ID        uint32
	Kind      Kind
	BlockSize uint32   // tokens per block
	NumBlocks uint64   // block ids are 0 .. NumBlocks-1
	Views     []View   // ascending layer, part, first head; must not be changed
	Shared    []uint16 // for each view, the index of the first view that begins at the same byte; nil: no two views do
	domain    int      // hold domain; groups whose views overlay the same bytes share one
}

// Views returns the views in canonical order (group, layer, part, first head). The caller must not change them.
func (l *Layout) Views() []View { return l.views }

// Group returns a group by its id, or nil if the layout has none with that id.
func (l *Layout) Group(id uint32) *Group {
	for i := range l.groups {
		if l.groups[i].ID == id {
			return &l.groups[i]
		}
	}
	return nil
}

// Layers returns the distinct layers, ascending. The caller must not change them.
func (l *Layout) Layers() []uint32 { return l.layers }

// Fingerprint returns the fields in ascending order of their keys. The caller must not change them.
func (l *Layout) Fingerprint() []Field { return l.fingerprint }

// Digest identifies the layout between daemons: it is the SHA-256 of Encode.
func (l *Layout) Digest() [32]byte { return l.digest }

// EncodedLen is the length of Encode in bytes.
func (l *Layout) EncodedLen() int { return l.encoded }
