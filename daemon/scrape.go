package daemon

import (
	"context"

	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// metrics returns the snapshot for one scrape.
func (v view) metrics(ctx context.Context) (metrics.Snapshot, error) {
	m, err := v.look(ctx)
	if err != nil {
		return metrics.Snapshot{}, err
	}
	connected := v.sessions.Sessions()
	s := metrics.Snapshot{
		Version: v.opts.Version, Node: v.cfg.Node, Draining: m.Draining, Sessions: len(connected), PinnedBytes: v.sessions.Pinned(),
		OrphanedBytes: v.sessions.Orphaned(),
		Offers:        map[string]int{}, HeldShared: m.HoldsShared, HeldExcl: m.HoldsExclusive - m.HoldsSeeking,
	}
	s.Transfers, s.Takes = inFlight(m)
	for _, state := range transfer.OfferStates {
		s.Offers[state] = 0
	}
	for _, o := range m.Offers {
		s.Offers[o.State]++
	}
	s.Pipes = map[string]metrics.PipeKind{}
	for i := range m.Pipes {
		x := &m.Pipes[i]
		p := s.Pipes[x.Kind()]
		if x.State != "waiting" && x.State != "remote" {
			p.Homes++
		}
		p.Items, p.Waiting, p.Bytes = p.Items+x.Items, p.Waiting+x.Waiting, p.Bytes+x.Bytes
		s.Pipes[x.Kind()] = p
	}
	limits := v.limits()
	for _, x := range connected {
		s.Regions += len(x.Regions)
		limits = mostUsed(limits, v.sessionLimits(m, &x))
	}
	for _, l := range limits {
		s.Limits = append(s.Limits, metrics.Limit(l))
	}
	v.tally.show(&s)
	v.scrapePeers(&s)
	v.scrapeNICs(&s)
	v.scrapeTransports(&s)
	v.scrapeGPUs(&s)
	v.scrapeTopology(&s)
	c := v.certificate()
	if c != nil {
		s.TLS, s.CertificateUntil = true, c.Until
	}
	s.Warnings = make(map[string]int, len(warningKinds))
	for _, kind := range warningKinds {
		s.Warnings[kind] = 0
	}
	for _, w := range v.warnings(c) {
		s.Warnings[w.kind]++
	}
	return s, nil
}

// inFlight counts ends of transfers, and the takes among them. It leaves out those that have ended and are only
// remembered, and gets that wait for an item.
func inFlight(m *transfer.Snapshot) (transfers, takes int) {
	for i := range m.Transfers {
		switch t := &m.Transfers[i]; {
		case t.State == transfer.TransferEnded:
		case t.End == transfer.Consumer:
			takes++
			fallthrough
		default:
			transfers++
		}
	}
	return transfers - m.Seeking, takes - m.Seeking
}

func (v view) scrapePeers(s *metrics.Snapshot) {
	peers, st := v.peers.Snapshot()
	s.Malformed, s.Refused, s.ChannelsOpened, s.Reopened = st.Malformed, st.Refused, st.Opened, st.Reconnects
	for i := range peers {
		p := &peers[i]
		x := metrics.Peer{Node: p.Node, Up: p.State == "up", RTT: p.RTT, Links: p.Links, Secure: p.Secure, DataPlain: p.DataPlain}
		if x.Up {
			e := v.explain(p.Node, p)
			x.Chosen, x.InPerSecond, x.OutPerSecond = e.Transport, e.GBpsIn*1e9, e.GBpsOut*1e9
		}
		s.Peers = append(s.Peers, x)
	}
}

func (v view) scrapeTransports(s *metrics.Snapshot) {
	if t := v.carriers.local; t != nil {
		st := t.Stats()
		s.Transports = append(s.Transports, metrics.Transport{Name: "local", SentBytes: st.Bytes, GotBytes: st.Bytes, SentSlices: st.Slices, GotSlices: st.Slices})
	}
	if v.tcp == nil {
		return
	}
	resent, malformed := v.tcp.Totals()
	s.SlicesRetried += resent
	s.Malformed += malformed
	for peer, st := range v.tcp.Stats() {
		s.Transports = append(s.Transports, metrics.Transport{
			Name: "tcp", Peer: peer, SentBytes: st.SentBytes, GotBytes: st.LandedBytes, SentSlices: st.SentSlices, GotSlices: st.LandedSlices, Discarded: st.DiscardedBytes,
		})
	}
}
