package ring

// Headers of records; ring.h says what follows each. Integers in records are little endian, too.
type (
	// RecGroup is struct kvpipe_rec_group.
	RecGroup struct {
		Group      uint32
		FirstToken uint32
		NTokens    uint32
		Form       uint32
		Count      uint32
		Reserved   uint32
	}

	// RecOffer is struct kvpipe_rec_offer.
	RecOffer struct {
		Flags                                  uint32
		Consumers                              uint32
		After                                  uint64
		KeyLen, TokenLen, ContentLen, TraceLen uint16
		NGroups                                uint32
		Reserved0                              uint32
		Reserved                               [4]uint64
	}

	// RecExtend is struct kvpipe_rec_extend.
	RecExtend struct {
		Flags    uint32
		NGroups  uint32
		After    uint64
		Reserved [2]uint64
	}

	// RecTake is struct kvpipe_rec_take.
	RecTake struct {
		Flags                                  uint32
		Part, Parts                            uint32
		Reserved0                              uint32
		TakeID                                 uint64
		After                                  uint64
		KeyLen, TokenLen, ContentLen, TraceLen uint16
		PeerLen                                uint16
		Reserved1                              [3]uint16
		NGroups                                uint32
		Reserved2                              uint32
		Reserved                               [3]uint64
	}

	// RecKey is struct kvpipe_rec_key.
	RecKey struct {
		KeyLen, TokenLen, TraceLen, PeerLen uint16
		Reserved                            [3]uint64
	}

	// RecBind is struct kvpipe_rec_bind.
	RecBind struct {
		Kind, Flags                           uint32
		Capacity                              uint64
		LingerNS                              uint64
		NameLen, TokenLen, PeerLen, Reserved0 uint16
		Reserved                              [2]uint64
	}

	// RecPut is struct kvpipe_rec_put.
	RecPut struct {
		Form, Flags      uint32
		Bytes            uint64
		MetaLen, KeyLen  uint32
		NTokens, NGroups uint32
		Reserved         [2]uint64
	}

	// RecGet is struct kvpipe_rec_get.
	RecGet struct {
		Match, Flags       uint32
		Room               uint64
		Seq                uint64
		KeyLen, NTokens    uint32
		NGroups, Reserved0 uint32
		Reserved           [3]uint64
	}
)

// Sizes of the record headers.
const (
	RecGroupSize  = 24
	RecOfferSize  = 64
	RecExtendSize = 32
	RecTakeSize   = 80
	RecKeySize    = 32
	RecBindSize   = 48
	RecPutSize    = 48
	RecGetSize    = 64
)
