package transfer

import "fmt"

// With Config.Debug a hand-over can be followed through the logs of both nodes by its trace id, or by its key and the
// transfer's name. Without it nothing is computed for single requests.

// The levels of log/slog.
const (
	debugLevel = -4
	infoLevel  = 0
	warnLevel  = 4
)

func (m *Machine) trace(text string, attrs ...any) {
	m.log(debugLevel, text, attrs...)
}

func hex(v uint64) string { return fmt.Sprintf("%016x", v) }

// traceOp logs that an operation was accepted. Offers have no peer; only takes and gets have a transfer.
func (m *Machine) traceOp(o *op, key []byte, trace, peer string, x XferID) {
	if m.cfg.Debug {
		m.trace(o.kind.String()+" accepted", "session", fmt.Sprintf("%#x", uint64(o.by.id)), "engine", o.by.engine.key.name, "op", uint64(o.id),
			"key", short(key), "trace", trace, "peer", peer, "transfer", hex(uint64(x)))
	}
}

// traceEnd logs that an operation was reported.
func (m *Machine) traceEnd(o *op, status Status, more bool) {
	if m.cfg.Debug {
		m.trace(o.kind.String()+" "+status.String(), "session", fmt.Sprintf("%#x", uint64(o.by.id)), "engine", o.by.engine.key.name, "op", uint64(o.id),
			"reason", o.cause.Reason.String(), "why", o.cause.Text, "more", more, "age", duration(m.now-o.began))
	}
}

// traceServe logs what became of a take at the producer's end.
func (m *Machine) traceServe(v *serve, text string) {
	if !m.cfg.Debug {
		return
	}
	by, transport := "", ""
	if v.offer != nil {
		by = v.offer.engine.key.name
	}
	if len(v.segs) > 0 {
		transport = v.segs[0].transport
	}
	m.trace(text, "peer", v.leg.id.Peer, "transfer", hex(uint64(v.leg.id.Xfer)), "engine", by, "consumer", v.take.Engine, "key", short(v.take.Key), "trace", v.take.Trace, "transport", transport,
		"reason", v.cause.Reason.String(), "why", v.cause.Text)
}
