package metrics

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeTimeout bounds how long a scrape waits for the daemon's snapshot.
const scrapeTimeout = 5 * time.Second

// takeBuckets reach from a small hand-over within a node to a take that waited for its offer.
var takeBuckets = []float64{
	5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30,
}

// Collector takes a snapshot when it is scraped, so that an idle daemon does nothing for its metrics.
type Collector struct {
	recent *recent
	Takes  prometheus.Histogram // seconds from take to done, observed by the daemon
}

// New returns a collector over source, which any goroutine may call.
func New(source func(context.Context) (Snapshot, error)) *Collector {
	return &Collector{recent: newRecent(source), Takes: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: OperationSeconds, Help: "Time from the submission of a take to its completion, of takes that ended done.",
		Buckets: takeBuckets,
	})}
}

// Handler serves the metrics, the Go runtime's and the process's included.
func (c *Collector) Handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(c, c.Takes, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
}

// Describe sends nothing: the collector is unchecked, since peers and reasons come and go.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of a snapshot.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s, err := c.recent.get(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(prometheus.NewDesc(BuildInfo, "", nil, nil), err)
		return
	}
	e := emitter{ch, map[string]bool{}}
	e.gauge(BuildInfo, "Always 1; the labels say what runs.", 1, "version", s.Version, "node", s.Node)
	e.gauge(Draining, "1 while no new operations are accepted.", number(s.Draining))
	e.gauge(Sessions, "Connected sessions.", float64(s.Sessions))
	e.gauge(Regions, "Registered regions.", float64(s.Regions))
	e.gauge(PinnedBytes, "Bytes of registered memory.", float64(s.PinnedBytes))
	e.gauge(OrphanedBytes, "Bytes of registered memory that ended sessions left behind: of dead engines under finished offers, of senders under items.", float64(s.OrphanedBytes))
	for state, n := range s.Offers {
		e.gauge(Offers, "Offers by state.", float64(n), "state", state)
	}
	for kind, p := range s.Pipes {
		e.gauge(Pipes, "Pipes and lookup buffers whose home is here.", float64(p.Homes), "kind", kind)
		e.gauge(PipeItems, "Items in pipes and lookup buffers that were not received yet.", float64(p.Items), "kind", kind)
		e.gauge(PipeBytes, "Bytes of items in pipes and lookup buffers that were not received yet.", float64(p.Bytes), "kind", kind)
		e.gauge(PipeWaiting, "Gets that wait for an item.", float64(p.Waiting), "kind", kind)
	}
	e.gauge(Takes, "Takes that have not ended.", float64(s.Takes))
	e.gauge(Transfers, "Transfers in flight, both ends counted.", float64(s.Transfers))
	e.gauge(HeldBlocks, "Blocks held by offers (shared) and takes (exclusive).", float64(s.HeldShared), "hold", "shared")
	e.gauge(HeldBlocks, "Blocks held by offers (shared) and takes (exclusive).", float64(s.HeldExcl), "hold", "exclusive")
	for o, n := range s.Operations {
		e.counter(Operations, "Completions of operations.", float64(n), "operation", o.Operation, "status", o.Status, "reason", o.Reason)
	}
	e.counter(MovedBytes, "Bytes of takes and gets that are done, and of takes that failed for want of some blocks alone.", float64(s.MovedBytes))
	e.counter(SlicesRetried, "Slices that were sent again.", float64(s.SlicesRetried))
	for reason, n := range s.SessionsEnded {
		e.counter(SessionsEnded, "Sessions that ended, by reason.", float64(n), "reason", reason)
	}
	for _, l := range s.Limits {
		e.gauge(Limits, "Limits of the configuration, in numbers or bytes.", float64(l.Limit), "limit", l.Key)
		e.gauge(LimitUsed, "How much of a limit is used, by the session nearest to it where it holds for each.", float64(l.Used), "limit", l.Key)
	}
	for _, p := range s.Peers {
		e.peer(p)
	}
	e.gauge(NICsKnown, "1 while the node's NICs could be read; kvpipectl nics says why not.", number(s.NICsKnown))
	for _, n := range s.NICs {
		e.nic(n)
	}
	for _, t := range s.Transports {
		e.transport(t)
	}
	e.gpus(&s)
	for _, n := range s.NearestNICs {
		e.gauge(GPUNICDistance, "How far each GPU is from the NICs nearest to it: 2 one PCIe switch (PIX), 3 several (PXB), 4 one root complex (PHB), 5 one NUMA node (NODE), 6 farther (SYS).",
			float64(n.Rank), "gpu", n.GPU, "pci", n.PCI, "nic", n.NIC, "way", n.Way)
	}
	for _, n := range s.NUMA {
		e.numa(n)
	}
	e.counter(MalformedFrames, "Frames of peers that no honest peer sends; each closed its connection.", float64(s.Malformed))
	e.counter(RefusedPeers, "Connections of peers that were refused.", float64(s.Refused))
	e.counter(ChannelsOpened, "Channels that were opened.", float64(s.ChannelsOpened))
	e.counter(Reconnects, "Channels that were opened to a node that had had one before.", float64(s.Reopened))
	e.certificate(&s)
	for kind, n := range s.Warnings {
		e.gauge(Warnings, "Warnings of kvpipectl status, by kind; listen and metrics: nobody can connect at the address of that name in the configuration.", float64(n), "kind", kind)
	}
}

// emitter shows each series once, the first time that it comes: a second one would make the whole page an error. The
// kernel can give two devices one name while one of them is renamed, and the names of two NICs can look alike once they
// are legible.
type emitter struct {
	to    chan<- prometheus.Metric
	shown map[string]bool
}

// certificate shows a certificate that cannot be used as one that ended long ago, so that alerts about its end see it.
func (e emitter) certificate(s *Snapshot) {
	if !s.TLS {
		return
	}
	var until float64
	if !s.CertificateUntil.IsZero() {
		until = float64(s.CertificateUntil.Unix())
	}
	e.gauge(CertificateExpiry, "When this node's certificate ends, or its CA's if that is before, seconds since 1970; 0 while there is none to use, absent where none is configured.", until)
}

func (e emitter) numa(n NUMANode) {
	node := strconv.Itoa(n.Node)
	e.gauge(NUMAThreads, "Copy workers and streams that run on a NUMA node because of their memory.", float64(n.Threads), "node", node)
	e.counter(NUMASlices, "Slices that were moved by threads on the NUMA node of their memory.", float64(n.Slices), "node", node)
	e.counter(NUMABytes, "Bytes that were moved by threads on the NUMA node of their memory.", float64(n.Bytes), "node", node)
}

func (e emitter) peer(p Peer) {
	e.gauge(PeerUp, "1 while there is a channel to the peer.", number(p.Up), "peer", p.Node)
	if !p.Up {
		return
	}
	e.gauge(PeerRTT, "Round trip of the last heartbeat.", p.RTT.Seconds(), "peer", p.Node)
	e.gauge(PeerLinks, "Data links of the channel.", float64(p.Links), "peer", p.Node)
	e.gauge(PeerSecure, "1 when the peer authenticated itself.", number(p.Secure), "peer", p.Node)
	e.gauge(PeerDataPlain, "1 when data links are not encrypted.", number(p.DataPlain), "peer", p.Node)
	if p.Chosen != "" {
		e.gauge(TransportChosen, "1 for the transport that serves the peer; kvpipectl explain says why.", 1, "peer", p.Node, "transport", p.Chosen)
		const rate = "Measured rate of what came from the peer (in) and went there (out) lately; 0 when it is not known."
		e.gauge(TransportRate, rate, p.InPerSecond, "peer", p.Node, "transport", p.Chosen, "direction", "in")
		e.gauge(TransportRate, rate, p.OutPerSecond, "peer", p.Node, "transport", p.Chosen, "direction", "out")
	}
}

func (e emitter) gpus(s *Snapshot) {
	if s.GPUState == "" {
		return
	}
	e.gauge(GPUDiscovery, "1 for what became of the search for GPUs; kvpipectl gpus says why.", 1, "state", s.GPUState)
	for state, n := range s.GPUs {
		e.gauge(GPUs, "GPUs of this node by state.", float64(n), "state", state)
	}
	for _, g := range s.GPUErrors {
		e.counter(GPUErrors, "Errors (Xid) of a GPU since the start.", float64(g.Errors), "uuid", g.UUID)
		if g.LastXid != 0 {
			e.gauge(GPULastXid, "The last error (Xid) of a GPU.", float64(g.LastXid), "uuid", g.UUID)
		}
	}
}

func (e emitter) nic(n NIC) {
	e.gauge(NICUp, "1 while the NIC is up and has carrier.", number(n.Up), "nic", n.Name)
	e.gauge(NICUsed, "1 while data links may go over the NIC; kvpipectl nics says why not.", number(n.Used), "nic", n.Name)
	if n.Mbps > 0 {
		e.gauge(NICSpeed, "Speed of the NIC.", float64(n.Mbps)*1e6, "nic", n.Name)
	}
	e.gauge(NICLinks, "Data links that go over the NIC.", float64(n.Links), "nic", n.Name)
}

func (e emitter) transport(t Transport) {
	const inline = " Hand-overs to other nodes of up to advanced.inline ride in the control connection, as a rule, and do not count here."
	const bytes, slices = "Bytes moved by a transport." + inline, "Slices moved by a transport." + inline
	e.counter(TransportBytes, bytes, float64(t.SentBytes), "transport", t.Name, "peer", t.Peer, "direction", "out")
	e.counter(TransportBytes, bytes, float64(t.GotBytes), "transport", t.Name, "peer", t.Peer, "direction", "in")
	e.counter(TransportSlices, slices, float64(t.SentSlices), "transport", t.Name, "peer", t.Peer, "direction", "out")
	e.counter(TransportSlices, slices, float64(t.GotSlices), "transport", t.Name, "peer", t.Peer, "direction", "in")
	e.counter(DiscardedBytes, "Bytes that arrived for nobody (fenced, late, duplicate) and were thrown away.", float64(t.Discarded), "transport", t.Name, "peer", t.Peer)
}

func (e emitter) gauge(name, help string, v float64, labels ...string) {
	e.emit(prometheus.GaugeValue, name, help, v, labels)
}

func (e emitter) counter(name, help string, v float64, labels ...string) {
	e.emit(prometheus.CounterValue, name, help, v, labels)
}

// emit takes labels as key, value, key, value.
func (e emitter) emit(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var keys, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		keys, values = append(keys, labels[i]), append(values, legible(labels[i+1]))
	}
	series := name + strings.Join(values, "\xff")
	if e.shown[series] {
		return
	}
	e.shown[series] = true
	e.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, keys, nil), kind, v, values...)
}

// legible makes a label's value UTF-8. The kernel does not ask that of NICs' names, and one value that is not UTF-8
// would make the whole page an error.
func legible(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
