// Package admintest is a daemon's face without a daemon: an admin.Source with fixed answers, for tests of the interface
// and of the programs that use it.
package admintest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// Source answers what its fields hold. The zero value is a daemon that knows nothing.
type Source struct {
	Err        error // of every answer, when set
	S          admin.Status
	P          []admin.Peer
	Se         []admin.Session
	R          []admin.Region
	O          []admin.Offer
	T          []admin.Transfer
	Pi         []admin.Pipe
	G          admin.GPUs
	To         admin.Topology
	N          admin.NICs
	E          admin.Explain
	Rows       []admin.BenchRow
	BenchErr   error                 // after Rows
	Drained    func(context.Context) // what draining does; nil: nothing
	LastPeer   string                // of Explain and Bench
	LastBench  admin.BenchOptions
	DrainCalls int
}

var _ admin.Source = (*Source)(nil)

func (s *Source) Status(context.Context) (admin.Status, error)        { return s.S, s.Err }
func (s *Source) Peers(context.Context) ([]admin.Peer, error)         { return s.P, s.Err }
func (s *Source) Sessions(context.Context) ([]admin.Session, error)   { return s.Se, s.Err }
func (s *Source) Regions(context.Context) ([]admin.Region, error)     { return s.R, s.Err }
func (s *Source) Offers(context.Context) ([]admin.Offer, error)       { return s.O, s.Err }
func (s *Source) Transfers(context.Context) ([]admin.Transfer, error) { return s.T, s.Err }
func (s *Source) Pipes(context.Context) ([]admin.Pipe, error)         { return s.Pi, s.Err }
func (s *Source) GPUs(context.Context) (admin.GPUs, error)            { return s.G, s.Err }

// Topology returns To.
func (s *Source) Topology(context.Context) (admin.Topology, error) { return s.To, s.Err }
func (s *Source) NICs(context.Context) (admin.NICs, error)         { return s.N, s.Err }

// Explain notes the peer in LastPeer. The peer "nobody" is not known.
func (s *Source) Explain(_ context.Context, peer string) (admin.Explain, error) {
	s.LastPeer = peer
	if peer == "nobody" {
		return admin.Explain{}, &admin.Failure{Code: http.StatusNotFound, Message: `peer "nobody" is not known (known: decode-1)`, Hint: "kvpipectl peers lists what is known"}
	}
	return s.E, s.Err
}

// Bench notes what was asked for and gives the rows, then BenchErr.
func (s *Source) Bench(_ context.Context, peer string, o admin.BenchOptions, row func(admin.BenchRow)) error {
	s.LastPeer, s.LastBench = peer, o
	for _, r := range s.Rows {
		row(r)
	}
	return errors.Join(s.BenchErr, s.Err)
}

// Drain counts calls and does what Drained does.
func (s *Source) Drain(ctx context.Context) error {
	s.DrainCalls++
	if s.Drained != nil {
		s.Drained(ctx)
	}
	return errors.Join(s.Err, ctx.Err())
}

// Example is a daemon with a little of everything. Its times are fixed.
func Example() *Source {
	rank := uint32(1)
	streams := []admin.Stream{
		{Index: 0, NIC: "ens1f0np0", Local: "10.1.0.1", Remote: "10.1.0.2", PeerNIC: "ens1f0np0"},
		{Index: 1, NIC: "ens2f0np0", Local: "10.2.0.1", Remote: "10.2.0.2"},
	}
	return &Source{
		S: admin.Status{
			Node: "prefill-0", Version: "0.1.0", Incarnation: "5a17c0de5a17c0de", Epoch: 1511506142, State: "running",
			Started: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Uptime: 3725.5, Socket: "/run/kvpipe/kvpiped.sock", Listen: "[::]:7650",
			Advertise: "prefill-0:7650", Metrics: "127.0.0.1:7651", DataPlain: true, PollMode: "event", Transports: []string{"local", "tcp"},
			Warnings:    []string{"data_plain: data links between authenticated peers are not encrypted"},
			Certificate: &admin.Certificate{File: "/etc/kvpipe/prefill-0.crt", Until: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)},
			Counts:      admin.Counts{Sessions: 2, Orphaned: 1, Engines: 1, Regions: 2, Offers: 2, Transfers: 2, Seeking: 3, Peers: 2, PeersUp: 1, HoldsShared: 512},
			Pinned:      3 << 30, Orphaned: 1 << 30, Moved: 5<<40 + 1<<39, Placement: "on, 2 NUMA nodes", Congestion: "cubic",
			NICs: 2,
			Limits: []admin.Limit{
				{Key: "limits.sessions", Used: 2, Limit: 1024}, {Key: "limits.sessions_per_uid", Used: 2, Limit: 512},
				{Key: "limits.ring_memory", Used: 34 << 20, Limit: 18 << 30}, {Key: "limits.total_pinned", Used: 3 << 30, Limit: 4 << 40},
			},
			GPUs: admin.GPUSummary{State: "ok", Driver: "570.133.20", Count: 3, Lost: 1},
		},
		P: []admin.Peer{
			{
				Node: "decode-1", Address: "10.0.0.2:7650", State: "up", Epoch: 9007199254740993, Version: "0.1.0", Protocol: 1, Dialed: true, Secure: true,
				DataPlain: true, WhyPlain: "data_plain", Links: 2, Streams: streams, Transports: []string{"local", "tcp"}, Transport: "tcp", RTT: 45.6e-6, GBps: 11.25, GBpsIn: 11.25, GBpsOut: 1.5, Age: 90,
			},
			{Node: "decode-2", Address: "10.0.0.3:7650", State: "down", Streams: []admin.Stream{}, Transports: []string{}, Problem: "dial tcp 10.0.0.3:7650: connection refused"},
			{Node: "decode-3", Address: "10.0.0.4:7650", State: "down", Streams: []admin.Stream{}, Transports: []string{}},
		},
		Se: []admin.Session{
			{ID: "0x5a17c0de00000001", Engine: "llama", Instance: "auto-1", Role: "scheduler", PID: 100, UID: 1000, Age: 61, Regions: 0, Operations: 2, Submitted: 12, Completed: 10,
				Limits: []admin.Limit{{Key: "limits.inflight", Used: 2, Limit: 4096}, {Key: "limits.offers", Used: 2, Limit: 4096}, {Key: "limits.session_pinned", Limit: 1 << 40}}},
			{ID: "0x5a17c0de00000002", Engine: "llama", Instance: "auto-1", Role: "worker", Rank: &rank, PID: 101, UID: 1000, Age: 60, Regions: 2, Pinned: 3 << 30, Progress: 7<<16 | 3, Submitted: 1, Completed: 11, Uncollected: 3,
				Limits: []admin.Limit{{Key: "limits.inflight", Limit: 4096}, {Key: "limits.offers", Limit: 4096}, {Key: "limits.session_pinned", Used: 3 << 30, Limit: 1 << 40}}},
		},
		R: []admin.Region{
			{ID: "0x100000001", Session: "0x5a17c0de00000002", Engine: "llama", Kind: "memfd", Bytes: 2 << 30, Nodes: []admin.Share{{Node: 1, Pages: 16}}},
			{ID: "0x100000002", Session: "0x5a17c0de00000002", Engine: "llama", Kind: "hugetlb memfd", Bytes: 1 << 30, Nodes: []admin.Share{{Node: 0, Pages: 12}, {Node: 1, Pages: 4}}},
			{ID: "0x100000003", Session: "0x5a17c0de00000002", Engine: "llama", Kind: "memfd", Bytes: 1 << 20, Invalid: true, Nodes: []admin.Share{}},
		},
		O: []admin.Offer{
			{Key: "cmpl-17", Engine: "llama", State: "sealed", Tokens: 8192, Blocks: 512, Sealed: true, Consumers: 2, Consumed: 1, Lease: 29.96, Age: 0.04, Trace: "4bf92f3577b34da6"},
			{Key: `\x00\xff`, Engine: "llama", State: "open", Tokens: 16, Blocks: 1, Consumers: 1, Lease: 600, Age: 3600},
			{Key: "cmpl-9", Engine: "old", State: "orphaned", Tokens: 4096, Blocks: 256, Sealed: true, Consumers: 1, Lease: 17.5, Age: 20},
		},
		T: []admin.Transfer{
			{ID: "00c0ffee00000001", End: "producer", State: "moving", Key: "cmpl-17", Engine: "mixtral", Peer: "decode-1", Transport: "tcp", Bytes: 1 << 30, Moved: 1 << 28, Deadline: 29.5, Age: 0.5, Trace: "4bf92f3577b34da6"},
			{ID: "00c0ffee00000002", End: "consumer", State: "asking", Key: "cmpl-18", Peer: "decode-1", Deadline: 30},
		},
		Pi: []admin.Pipe{
			{Name: "hidden", Kind: "pipe", Home: "prefill-0", State: "open", Engine: "llama", Ends: 1, Items: 3, Bytes: 48 << 20, Capacity: 64 << 20, Waiting: 0, Delivered: 1200},
			{Name: "hidden", Kind: "pipe", Home: "decode-1", State: "remote", Ends: 1, Waiting: 32},
			{Name: "cache", Kind: "buffer", Home: "prefill-0", State: "lingering", Engine: "llama", Ends: 2, Items: 100, Bytes: 5 << 30, Capacity: 8 << 30, Waiting: 1, Delivered: 7},
		},
		G:  gpus(),
		To: exampleTopology(),
		E: admin.Explain{
			Peer: "decode-1", Transport: "tcp", GBps: 11.25, GBpsIn: 11.25, GBpsOut: 1.5, Secure: true, DataPlain: true, WhyPlain: "data_plain", Notes: []string{"data links are not encrypted: both sides say data_plain"},
			Streams: streams,
			Choices: []admin.ExplainTried{
				{Transport: "local", Answer: "refused", Reason: "local copies need both ends on one node; decode-1 is another one"},
				{Transport: "rdma", Answer: "refused", Reason: "not part of this build"},
				{Transport: "tcp", Answer: "chosen"},
			},
		},
		N: nics(),
		Rows: []admin.BenchRow{
			{Transport: "local", Error: "local copies need both ends on one node; decode-1 is another one"},
			{Transport: "tcp", Bytes: 4096, Blocks: 1, Count: 20000, GBps: 0.0819, P50: 50e-6, P99: 98.7654e-6},
			{Transport: "tcp", Bytes: 1 << 20, Blocks: 32, Count: 300, GBps: 11.3, P50: 2.97e-3, P99: 3.5e-3},
		},
	}
}
