package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/driver"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport"
	"github.com/kvpipe/kvpipe/daemon/transport/local"
	"github.com/kvpipe/kvpipe/daemon/transport/tcp"
	"github.com/kvpipe/kvpipe/internal/reuse"
	"github.com/kvpipe/kvpipe/internal/version"
)

// assemble makes the machine, transports, channels, sessions and driver. None of them runs yet.
func (d *Daemon) assemble() error {
	c, to := &d.cfg, &sink{tally: d.tally}
	d.bench = newBencher(c.Node, to, func(name string) bool { return slices.Contains(d.cfg.Transports, name) })
	to.bench = d.bench
	d.machine = transfer.New(machineConfig(c))
	var err error
	if d.carriers, err = newCarriers(c, moved{to}, d.log, d.places); err != nil {
		return err
	}
	d.tcp = d.carriers.tcp
	payloads := new(reuse.Buffers)
	pc := d.peerConfig(to)
	pc.Payloads = payloads
	if d.peers, err = peer.New(pc); err != nil {
		return err
	}
	d.nics.peers.Store(d.peers)
	d.bench.peers, d.bench.draining = d.peers, d.drains
	if d.tcp != nil {
		d.tcp.SetSource(d.peers)
	}
	flush := to.Flush
	if c.PollMode == "busy" {
		flush = to.Pass // the poller keeps the Go runtime awake by itself
	}
	d.sessions, err = session.New(session.Config{
		Node: c.Node, Advertise: d.advertise(), Version: d.opts.Version, Epoch: d.epoch(), Events: to.Event, Queue: to.Queue, Flush: flush, After: to.After,
		Limits: sessionLimits(c), PollMode: c.PollMode, Spin: c.Advanced.Spin.D(), Log: d.log,
		State: c.Socket + ".state", ABI: version.Rings(ring.ABIMin, ring.ABI),
	})
	if err != nil {
		return err
	}
	d.driver = driver.New(driver.Config{
		Machine: d.machine, Sessions: &router{clients: d.sessions, bench: d.bench, tally: d.tally}, Only: d.bench.only, Peers: d.peers, Transports: d.carriers.list,
		Known: config.KnownTransports, Node: c.Node, Inline: uint64(c.Advanced.Inline), Payloads: payloads, PlanInline: 8192, Planners: 1, Log: d.log,
	})
	to.driver = d.driver
	d.driver.Event(d.sessions.Awaited())
	return nil
}

func machineConfig(c *config.Config) transfer.Config {
	return transfer.Config{
		Node: c.Node, Random: random, WindowBytes: uint64(c.Advanced.Window), WindowsHere: c.Local.CopyWorkers, AtOnce: 64,
		DefaultLease: transfer.Time(c.Offers.DefaultLease), MaxLease: transfer.Time(c.Offers.MaxLease), OrphanLease: transfer.Time(c.Offers.OrphanLease),
		OfferWait: transfer.Time(c.Offers.OfferWait), TombstoneFor: transfer.Time(c.Offers.Tombstone), FenceGrace: transfer.Time(c.Advanced.FenceGrace),
		// The machine's pauses grow to sixteen times this. The peers' own, beside which they run, grow to DialMax.
		Redial: min(200*transfer.Millisecond, transfer.Time(c.Peers.DialMax)/16),
		MaxOps: c.Limits.Inflight, MaxOffers: c.Limits.Offers, MaxPipes: c.Limits.Pipes, MaxItems: c.Limits.Items, MaxBlockIDs: c.Limits.BlockIDs,
		Debug: c.Log.Level == "debug",
	}
}

func (d *Daemon) peerConfig(to *sink) peer.Config {
	c := &d.cfg
	pc := peer.Config{
		Node: c.Node, Incarnation: d.incarnation, Version: d.opts.Version, Proto: version.Peers(peer.ProtoMin, peer.ProtoMax), Advertise: d.advertise(), Identity: d.identity,
		Insecure: c.Insecure, DataPlain: c.DataPlain, EncryptLoopback: c.TCP.EncryptLoopback, Transports: c.Transports, Nodes: c.Peers.Nodes, Allow: prefixes(c.Peers.Allow),
		Heartbeat: c.Peers.Heartbeat.D(), IdleClose: c.Peers.IdleClose.D(), Busy: d.busyWith, DialMax: c.Peers.DialMax.D(), Events: to.Event, Queue: to.Queue, Flush: to.Flush, After: to.After,
		Transport: d.carriers.serving, Log: d.log,
	}
	if d.listener != nil {
		pc.Listener = d.listener
	}
	if !c.Insecure { // insecure is for loopback alone
		pc.Rails = d.nics
	}
	if d.tcp != nil {
		pc.Links, pc.Streams, pc.Congestion = d.tcp, c.TCP.Streams, c.TCP.Congestion
	}
	return pc
}

// busyWith reports whether a transfer whose other end is on that node has not ended yet, or whether that cannot be
// told.
func (d *Daemon) busyWith(ctx context.Context, node string) bool {
	s, err := ask(ctx, d.driver, d.machine.Snapshot)
	return err != nil || slices.ContainsFunc(s.Transfers, func(t transfer.TransferInfo) bool { return t.Peer == node && t.State != transfer.TransferEnded })
}

func sessionLimits(c *config.Config) session.Limits {
	return session.Limits{
		Sessions: c.Limits.Sessions, SessionsPerUID: c.Limits.SessionsPerUID, Inflight: c.Limits.Inflight, BlockIDs: c.Limits.BlockIDs, Items: c.Limits.Items,
		SessionPinned: uint64(c.Limits.SessionPinned), TotalPinned: uint64(c.Limits.TotalPinned), RingMemory: uint64(c.Limits.RingMemory),
	}
}

func prefixes(in []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, s := range in {
		if p, err := netip.ParsePrefix(s); err == nil { // Check refused others
			out = append(out, p.Masked())
		}
	}
	return out
}

// carriers are the transports of the allow-list, in its order.
type carriers struct {
	list  []transport.Transport
	local *local.Transport
	tcp   *tcp.Transport
}

func newCarriers(c *config.Config, to transport.Sink, log logger, places *place.Places) (*carriers, error) {
	cs := new(carriers)
	for _, name := range c.Transports {
		switch name {
		case "local":
			t, err := local.New(local.Config{Workers: c.Local.CopyWorkers, Nice: c.Local.Nice, Places: places, Sink: to})
			if err != nil {
				return nil, errors.Join(err, cs.close())
			}
			cs.local = t
			cs.list = append(cs.list, t)
		case "tcp":
			cs.tcp = tcp.New(tcp.Config{Sink: to, CRC: crcMode(c.CRC), Spin: spin(c.TCP.Spin), Places: places, Log: log})
			cs.list = append(cs.list, cs.tcp)
		}
	}
	return cs, nil
}

// serving returns the transport that serves a node, as the driver chooses it, or "". barred returns why the node
// refuses one, or "".
func (cs *carriers) serving(node string, barred func(transport string) string) string {
	for _, t := range cs.list {
		if t.Probe(node).OK && barred(t.Name()) == "" {
			return t.Name()
		}
	}
	return ""
}

func (cs *carriers) close() error {
	if cs == nil {
		return nil
	}
	var errs []error
	for _, t := range cs.list {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// spin translates tcp.spin: the transport wants a negative value for no spinning; 0 is its default.
func spin(d config.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d.D()
}

func crcMode(s string) tcp.CRC {
	switch s {
	case "on":
		return tcp.CRCOn
	case "off":
		return tcp.CRCOff
	}
	return tcp.CRCAuto
}
