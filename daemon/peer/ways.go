package peer

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// wayTimeout bounds an attempt on one of several ways, so that a way that leads nowhere delays a channel little.
const wayTimeout = 2 * time.Second

// maxWays is how many ways are tried for a link, one after another, before it goes where the channel goes: a peer may
// name many addresses at which nobody answers. The other ways have their turn when links are looked at again.
const maxWays = 4

// spreadGap is about the least time between two looks at where links should go. A peer may say as often as it likes
// that it has moved, and each look asks for routes and tries ways.
const spreadGap = time.Second

// news reacts to a change of this node's NICs or their addresses: it tells peers and moves links.
func (m *Manager) news() {
	m.rough.forget()
	for _, c := range m.all() {
		c.tellAddresses()
		c.spreadAgain()
	}
}

// NICsChanged says that the answers of Rails have changed. It returns at once.
func (m *Manager) NICsChanged() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.wg.Go(m.news)
	}
}

// tellAddresses tells the peer where it can reach this node now, unless it knows that. Calls run one after another, so
// that the newest addresses are sent last.
func (c *channel) tellAddresses() {
	if c.m.cfg.Rails == nil || !c.isUp() {
		return
	}
	c.telling.Lock()
	defer c.telling.Unlock()
	own := c.m.cfg.Rails.Own()
	c.links.mu.Lock()
	same := slices.Equal(own, c.links.told)
	c.links.told = own
	c.links.mu.Unlock()
	if !same {
		_ = c.say(func(b []byte) ([]byte, error) {
			return appendAddresses(b, c.epoch, uint64(c.m.clock()), encodeAddresses(own))
		})
	}
}

// theyMoved notes the peer's addresses.
func (c *channel) theyMoved(all []Address) {
	c.links.mu.Lock()
	before := c.links.theirs
	c.links.theirs = all
	c.links.mu.Unlock()
	if !slices.Equal(all, before) {
		c.m.rough.forgetTo(c.node, newTo(before, all))
		c.spreadAgain()
	}
}

// newTo returns the addresses of all that are not in before.
func newTo(before, all []Address) (out []Address) {
	for _, a := range all {
		if !slices.ContainsFunc(before, func(b Address) bool { return b.IP == a.IP }) {
			out = append(out, a)
		}
	}
	return out
}

// plan says where each of the channel's links should go; nil: where the channel goes. It asks the kernel for routes.
func (c *channel) plan() []Path {
	if c.m.cfg.Rails == nil || !c.dialed {
		return nil
	}
	home := endsOf(c.tcp)
	c.links.mu.Lock()
	theirs := slices.Clone(c.links.theirs)
	c.links.mu.Unlock()
	c.m.mu.Lock()
	_, named := c.m.nodes[c.node]
	allow := c.m.allow
	c.m.mu.Unlock()
	// A link may go where the channel goes; anywhere else only if the configuration allows it. Nor does it go from a
	// channel on loopback to a network or the other way round: links beside a channel on loopback may be plain for that
	// reason, and this node's own loopback is no address of a peer.
	theirs = slices.DeleteFunc(theirs, func(a Address) bool {
		return a.IP.Is4() != home.remote.Is4() || a.IP.IsLoopback() != home.remote.IsLoopback() || a.IP != home.remote && !named && !within(allow, a.IP)
	})
	if !slices.ContainsFunc(theirs, func(a Address) bool { return a.IP == home.remote }) {
		theirs = append(theirs, Address{IP: home.remote})
	}
	return spread(c.m.rough.without(c.node, c.m.cfg.Rails.Paths(theirs)), c.links.want, home)
}

// claim chooses the way of a link that is about to be dialed, of those that the other links leave; nil: where the
// channel goes. Without any, that is the only choice.
func (c *channel) claim(index int, any bool) *Path {
	var left []Path
	if any {
		left = c.plan()
	}
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	for i, aim := range c.links.aim {
		if i == index {
			continue
		}
		if j := slices.IndexFunc(left, func(p Path) bool { return p.ends() == aim }); j >= 0 {
			left = slices.Delete(left, j, j+1)
		}
	}
	if len(left) == 0 {
		c.links.aim[index] = ends{}
		return nil
	}
	c.links.aim[index] = left[0].ends()
	return &left[0]
}

// dialWay connects along one of the ways, or to where the channel goes if none is of use. A link that is to move but
// has nowhere better to go stays, so that what is in flight on it need not be sent again.
func (c *channel) dialWay(ctx context.Context, index int, use func(context.Context, *net.TCPConn) error) error {
	for tried := 0; ; tried++ {
		way, to := c.claim(index, tried < maxWays), endsOf(c.tcp)
		if way != nil {
			to = way.ends()
		}
		if c.links.stays(index, to) {
			return nil
		}
		if way == nil {
			return c.tryHome(ctx, use)
		}
		err := c.tryWay(ctx, way, use)
		if err == nil {
			c.m.rough.smooth(c.node, way.ends())
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.m.rough.mark(c.node, way.ends())
		if c.m.wayless.Due(c.node) {
			c.m.log.Warn("data link cannot go this way, taking another", "peer", c.node, "link", index, "nic", way.From.NIC, "from", way.From.IP, "to", way.To.IP,
				"peer_nic", way.To.NIC, "error", err)
		}
	}
}

// tryHome connects to where the channel goes. Its time is its own: the ways before it may have led nowhere slowly.
func (c *channel) tryHome(ctx context.Context, use func(context.Context, *net.TCPConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	tcp, err := dialAny(ctx, nil, []string{c.tcp.RemoteAddr().String()})
	if err != nil {
		return err
	}
	return use(ctx, tcp)
}

func (c *channel) tryWay(ctx context.Context, way *Path, use func(context.Context, *net.TCPConn) error) error {
	ctx, cancel := context.WithTimeout(ctx, wayTimeout)
	defer cancel()
	there := netip.AddrPortFrom(way.To.IP, c.tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Port())
	tcp, err := dialAny(ctx, &net.TCPAddr{IP: way.From.IP.AsSlice()}, []string{there.String()})
	if err != nil {
		return err
	}
	return use(ctx, tcp)
}

// spreadAgain moves links to where they should be by now, in the background. A link moves by being opened anew: its
// successor takes the place of the old one at both ends, and slices in flight on the old one are sent again.
func (c *channel) spreadAgain() {
	if c.m.cfg.Rails == nil || !c.dialed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || !c.up.Load() || !c.spreadDue.CompareAndSwap(false, true) { // else somebody is about to look anyway
		return
	}
	c.m.wg.Go(func() {
		c.spreading.Lock()
		defer c.spreading.Unlock()
		if time.Since(c.spreadAt) < spreadGap && !c.pause(c.ctx, spreadGap) {
			return
		}
		c.spreadDue.Store(false)
		defer func() { c.spreadAt = time.Now() }()
		c.rearrange()
	})
}

// rearrange moves links, one after another. The caller holds spreading.
func (c *channel) rearrange() {
	for _, i := range c.misplaced() {
		c.links.move(i, true)
		c.moved(i, c.openLink(i))
	}
}

// moved ends the move of a link. If the link is down then, because its successor did not come up or was lost at once,
// moved reopens it: Redial leaves a moving link alone.
func (c *channel) moved(index int, err error) {
	if err != nil && c.m.linkless.Due(c.node) { // the peer says how often it is tried
		c.warn("data link could not move", index, err)
	}
	if !c.links.move(index, false) {
		c.reopen(c.ctx, index, firstWait)
	}
}

// misplaced returns the links that are up and go another way than planned.
func (c *channel) misplaced() (out []int) {
	plan := c.plan()
	home := endsOf(c.tcp)
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	stays := func(at ends) bool { return at == home }
	if plan != nil {
		stays = func(at ends) bool {
			j := slices.IndexFunc(plan, func(p Path) bool { return p.ends() == at })
			if j >= 0 {
				plan = slices.Delete(plan, j, j+1)
			}
			return j >= 0
		}
	}
	for i, at := range c.links.at {
		if c.links.up[i] == nil {
			at = c.links.aim[i]
		}
		if !stays(at) && c.links.up[i] != nil {
			out = append(out, i)
		}
	}
	return out
}

// endsOf returns the addresses of a connection.
func endsOf(c net.Conn) ends { return ends{hostOf(c.LocalAddr()), hostOf(c.RemoteAddr())} }

// Stream describes a data link for people.
type Stream struct {
	Index         int
	Local, Remote netip.Addr
	PeerNIC       string // as the peer calls it; "": unknown
}

// streams lists the links that are up.
func (l *links) streams() (out []Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, at := range l.at {
		if l.up[i] == nil {
			continue
		}
		s := Stream{Index: i, Local: at.local, Remote: at.remote}
		for _, a := range l.theirs {
			if a.IP == at.remote {
				s.PeerNIC = a.NIC
			}
		}
		out = append(out, s)
	}
	return out
}
