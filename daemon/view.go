package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// view is how the daemon looks from outside: it answers for admin.Source and takes the snapshot of metrics.
type view struct{ *Daemon }

// look takes a snapshot of the machine, as of now.
func (v view) look(ctx context.Context) (*transfer.Snapshot, error) {
	return ask(ctx, v.driver, func() *transfer.Snapshot { return v.machine.SnapshotAt(v.driver.Now()) })
}

func (v view) Status(ctx context.Context) (admin.Status, error) {
	m, err := v.look(ctx)
	if err != nil {
		return admin.Status{}, err
	}
	v.mu.Lock()
	c, draining := v.cfg, v.draining
	v.mu.Unlock()
	peers, _ := v.peers.Snapshot()
	up, regions := 0, 0
	for _, p := range peers {
		if p.State == "up" {
			up++
		}
	}
	connected := v.sessions.Sessions()
	for _, s := range connected {
		regions += len(s.Regions)
	}
	transfers, _ := inFlight(m)
	s := admin.Status{
		Node: c.Node, Version: v.opts.Version, Incarnation: fmt.Sprintf("%016x", v.incarnation), Epoch: v.epoch(), State: "running",
		Started: v.started, Uptime: time.Since(v.started).Seconds(), Socket: c.Socket, Listen: v.listenAddr(), Advertise: v.advertise(),
		Insecure: c.Insecure, DataPlain: c.DataPlain, PollMode: c.PollMode, Transports: c.Transports, Warnings: []string{}, Pinned: v.sessions.Pinned(), Orphaned: v.sessions.Orphaned(),
		Limits: v.limits(),
		Counts: admin.Counts{
			Sessions: len(connected), Orphaned: m.Orphaned, Engines: m.Engines, Regions: regions, Offers: len(m.Offers), Transfers: transfers,
			Seeking: m.Seeking, Parked: m.Parked, PeersUp: up, Peers: len(peers), HoldsShared: m.HoldsShared, HoldsExclusive: m.HoldsExclusive - m.HoldsSeeking,
		},
	}
	if v.web != nil {
		s.Metrics = v.web.Addr().String()
	}
	if draining {
		s.State = "draining"
	}
	s.Moved = v.tally.bytes()
	s.GPUs = v.gpuSummary()
	s.Placement, s.Congestion = v.placementState(), v.congestion
	s.NICs = len(v.nics.used(v.nics.watcher.Current()))
	s.Certificate = v.certificate()
	for _, w := range v.warnings(s.Certificate) {
		s.Warnings = append(s.Warnings, w.text)
	}
	return s, nil
}

func (v view) Peers(context.Context) ([]admin.Peer, error) {
	all, _ := v.peers.Snapshot()
	out := make([]admin.Peer, 0, len(all))
	for _, p := range all {
		a := admin.Peer{
			Node: p.Node, Address: p.Address, State: p.State, Epoch: p.Epoch, Version: p.Version, Protocol: p.Proto, Dialed: p.Dialed, Secure: p.Secure,
			DataPlain: p.DataPlain, WhyPlain: p.WhyPlain, Links: p.Links, Streams: v.streams(&p), Transports: p.Transports, RTT: p.RTT.Seconds(), Problem: p.Problem,
		}
		if a.Transports == nil {
			a.Transports = []string{} // the peer has not said yet
		}
		if p.State == "up" {
			e := v.explain(p.Node, &p)
			a.Age, a.Transport = time.Since(p.Since).Seconds(), e.Transport
			a.GBps, a.GBpsIn, a.GBpsOut = e.GBps, e.GBpsIn, e.GBpsOut
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b admin.Peer) int { return strings.Compare(a.Node, b.Node) })
	return out, nil
}

func (v view) Sessions(ctx context.Context) ([]admin.Session, error) {
	m, err := v.look(ctx)
	if err != nil {
		return nil, err
	}
	out := []admin.Session{}
	for _, s := range v.sessions.Sessions() {
		a := admin.Session{
			ID: number(uint64(s.ID)), Engine: s.Engine, Instance: s.Instance, Role: s.Role.String(), PID: s.PID, UID: int(s.UID), Age: s.Age.Seconds(),
			Regions: len(s.Regions), Pinned: s.Pinned, Operations: s.Open, Progress: s.Progress, Submitted: s.Submissions,
			Completed: s.Completions, Uncollected: int(s.Unread), Limits: v.sessionLimits(m, &s),
		}
		if s.Role == transfer.Worker {
			a.Rank = &s.Rank
		}
		out = append(out, a)
	}
	return out, nil
}

func (v view) Regions(context.Context) ([]admin.Region, error) {
	out := []admin.Region{}
	for _, s := range v.sessions.Sessions() {
		for _, r := range s.Regions {
			out = append(out, admin.Region{ID: number(uint64(r.ID)), Session: number(uint64(s.ID)), Engine: s.Engine, Kind: r.Kind.String(), Bytes: r.Bytes, Invalid: r.Vacant, Nodes: v.lies(&s, &r)})
		}
	}
	return out, nil
}

func (v view) Offers(ctx context.Context) ([]admin.Offer, error) {
	m, err := v.look(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]admin.Offer, 0, len(m.Offers))
	for _, o := range m.Offers {
		out = append(out, admin.Offer{
			Key: printable(o.Key), Engine: o.Engine, State: o.State, Tokens: o.Tokens, Blocks: o.Blocks, Sealed: o.Sealed, Consumers: o.Consumers,
			Consumed: o.Consumed, Lease: seconds(o.Lease), Age: seconds(o.Age), Trace: o.Trace,
		})
	}
	return out, nil
}

func (v view) Pipes(ctx context.Context) ([]admin.Pipe, error) {
	m, err := v.look(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]admin.Pipe, 0, len(m.Pipes))
	for _, p := range m.Pipes {
		out = append(out, admin.Pipe{
			Name: printable(p.Name), Kind: p.Kind(), Home: p.Home, State: p.State, Engine: p.Engine, Ends: p.Ends, Items: p.Items, Bytes: p.Bytes,
			Capacity: p.Capacity, Waiting: p.Waiting, Delivered: p.Delivered,
		})
	}
	return out, nil
}

func (v view) Transfers(ctx context.Context) ([]admin.Transfer, error) {
	m, err := v.look(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]admin.Transfer, 0, len(m.Transfers))
	for _, t := range m.Transfers {
		a := admin.Transfer{
			ID: fmt.Sprintf("%016x", uint64(t.Xfer)), End: "producer", State: t.State, Key: printable(t.Key), Engine: t.Engine, Peer: t.Peer,
			Transport: t.Transport, Bytes: t.Bytes, Moved: t.Moved, Deadline: seconds(t.Deadline), Age: seconds(t.Age), Trace: t.Trace,
		}
		if t.End == transfer.Consumer {
			a.End = "consumer"
		}
		out = append(out, a)
	}
	return out, nil
}

// number writes an id as the log does. As a number it would be too large for many JSON parsers.
func number(n uint64) string { return fmt.Sprintf("%#x", n) }

func seconds(t transfer.Time) float64 { return time.Duration(t).Seconds() }

// printable shows a key of arbitrary bytes as text.
func printable(key string) string {
	q := fmt.Sprintf("%q", key)
	return q[1 : len(q)-1]
}

func notFound(format string, args ...any) error {
	return &admin.Failure{Code: http.StatusNotFound, Message: fmt.Sprintf(format, args...), Hint: "kvpipectl peers lists what is known"}
}

// status returns what is known of a peer.
func (v view) status(node string) (*peer.Status, error) {
	all, _ := v.peers.Snapshot()
	var names []string
	for i := range all {
		if all[i].Node == node {
			return &all[i], nil
		}
		names = append(names, all[i].Node)
	}
	slices.Sort(names)
	return nil, notFound("peer %q is not known (known: %s)", node, cmp.Or(strings.Join(names, ", "), "none"))
}
