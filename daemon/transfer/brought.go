package transfer

import (
	"math"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// MsgSeek brings the take along that its GET will make of what is found: the receiver knows all of it beforehand, but for which item and how
// many bytes. The home begins it with the item, as if MsgTake had come, which saves a message and a way there and back. Whatever goes wrong
// then goes as it does with MsgTake, which the receiver sends when no grant comes.

// takeFound says what was found, and begins the take that came with the MsgSeek. Where that cannot be, MsgTake has to come. From here on
// the take holds the block ids: counted twice, what waits could fill what its takes need, and none of them would begin.
func (m *Machine) takeFound(k *seeker) {
	t := k.taking(m)
	k.letTakeGo()
	m.sayFound(k, t != nil)
	if t != nil {
		m.askedFor(k.peer, t)
	}
}

// taking is the MsgTake that the receiver would send, if it can be told from its MsgSeek.
func (k *seeker) taking(m *Machine) *MsgTake {
	b, it := k.brought, k.item
	switch {
	case b == nil || k.state != seekFound || it.bytes == 0 || len(b.Ranks) != 1 || len(b.Blocks) != 1:
		return nil
	case !k.peer.up || !k.end.bound: // it came to this one when another was given up, and this one is next
		return nil
	}
	l, blocks := k.peer.knows[b.Ranks[0].Digest], b.Blocks[0]
	if l == nil {
		return nil
	}
	g := l.layout.Group(blocks.Group)
	if g == nil || g.Kind != layout.Paged || blocks.FirstToken != 0 || uint64(len(blocks.IDs))*uint64(g.BlockSize) < it.bytes {
		return nil // as coversBytes has it at the receiver: a peer may say anything
	}
	o, t := m.asOffer(it), *b
	t.Xfer, t.Key, t.Token, t.Deadline = k.id.Xfer, []byte(o.key), o.token, max(k.until-m.now, 1)
	t.Blocks = clipTo(blocks, g, it.bytes)
	return &t
}

// clipTo is as much of a list as an item of that many bytes needs: the receiver and the home cut it alike.
func clipTo(b layout.BlockList, in *layout.Group, bytes uint64) []layout.BlockList {
	size := uint64(in.BlockSize)
	b.NTokens, b.IDs = uint32(min(bytes, math.MaxUint32)), b.IDs[:(bytes+size-1)/size]
	return []layout.BlockList{b}
}
