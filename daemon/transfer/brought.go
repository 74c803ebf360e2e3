package transfer

import (
	"math"

	"github.com/kvpipe/kvpipe/daemon/layout"
)

// MsgSeek carries the take that its GET will become when something is found. The receiver knows all of that take
// beforehand, except which item it is and how many bytes it has. The home begins the take with the item, as if MsgTake
// had come, which saves a message and a round trip. If it cannot, everything goes as with MsgTake, which the receiver
// sends when no grant comes.

// takeFound tells the receiver what was found, and begins the take that came with the MsgSeek. If it cannot begin,
// MsgTake has to come. From here on only the take counts the block ids. If the seeker counted them too, waiting gets
// could fill the room that their takes need, and none of them would begin.
func (m *Machine) takeFound(k *seeker) {
	t := k.taking(m)
	k.letTakeGo()
	m.sayFound(k, t != nil)
	if t != nil {
		m.askedFor(k.peer, t)
	}
}

// taking returns the MsgTake that the receiver would send, or nil if it cannot be told from the MsgSeek.
func (k *seeker) taking(m *Machine) *MsgTake {
	b, it := k.brought, k.item
	switch {
	case b == nil || k.state != seekFound || it.bytes == 0 || len(b.Ranks) != 1 || len(b.Blocks) != 1:
		return nil
	case !k.peer.up || !k.end.bound: // another get was given up, so its item came here, and this get is given up next
		return nil
	}
	l, blocks := k.peer.knows[b.Ranks[0].Digest], b.Blocks[0]
	if l == nil {
		return nil
	}
	g := l.layout.Group(blocks.Group)
	if g == nil || g.Kind != layout.Paged || blocks.FirstToken != 0 || uint64(len(blocks.IDs))*uint64(g.BlockSize) < it.bytes {
		return nil // checked as in coversBytes at the receiver, since a peer may say anything
	}
	o, t := m.asOffer(it), *b
	t.Xfer, t.Key, t.Token, t.Deadline = k.id.Xfer, []byte(o.key), o.token, max(k.until-m.now, 1)
	t.Blocks = clipTo(blocks, g, it.bytes)
	return &t
}

// clipTo returns as much of a list as an item of that many bytes needs. The receiver and the home cut it alike.
func clipTo(b layout.BlockList, in *layout.Group, bytes uint64) []layout.BlockList {
	size := uint64(in.BlockSize)
	b.NTokens, b.IDs = uint32(min(bytes, math.MaxUint32)), b.IDs[:(bytes+size-1)/size]
	return []layout.BlockList{b}
}
