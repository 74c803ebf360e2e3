package sim

import (
	"encoding/binary"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// hands notes which items an effect hands to an end: found for an end on another node, moved to one on this node, or
// reported to one.
func (n *Node) hands(e transfer.Effect) {
	switch e := e.(type) {
	case transfer.Send:
		if f, ok := e.Msg.(*transfer.MsgFound); ok {
			n.c.described(f.Meta).handed(n.c.byName[e.Node])
		}
	case transfer.Complete:
		if e.Got != nil {
			n.c.described(e.Got.Meta).handed(n)
		}
	case transfer.MakePlan:
		if e.Leg.Peer == "" {
			n.moves(e.Producer, e.Src)
		}
	case *transfer.MoveNow:
		n.moves(e.Producer, e.Src)
	}
}

func (n *Node) moves(from []transfer.RankLayout, lists []layout.BlockList) {
	for _, s := range n.owners(from) {
		for _, at := range s.mem.places(lists) {
			if o := s.src[at]; o != nil {
				o.item.handed(n)
			}
		}
	}
}

// handed notes that an end on that node may receive the item now.
func (t *thing) handed(to *Node) {
	if t != nil && t.got > 0 && to != t.gotBy {
		t.elsewhere = true
	}
}

// described returns the item with that description; nil: there is none, so a mad node made it up.
func (c *Cluster) described(meta []byte) *thing {
	if len(meta) != 8 {
		return nil
	}
	return c.items[binary.LittleEndian.Uint64(meta)]
}
