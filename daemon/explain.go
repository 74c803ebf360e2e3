package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/daemon/transport"
)

// everyTransport lists what the product knows, best first, so that explain can say why one is not used.
var everyTransport = []string{"local", "rdma", "cuda", "nccl", "tcp"}

// absent is why a transport is not used that this build does not have.
const absent = "not part of this build"

func (v view) Explain(_ context.Context, node string) (admin.Explain, error) {
	if node == "" || node == v.cfg.Node {
		return v.explain("", nil), nil
	}
	p, err := v.status(node)
	if err != nil {
		return admin.Explain{}, err
	}
	return v.explain(node, p), nil
}

// explain asks every transport, in order of preference, and says what became of it. node "" stands for this one.
func (v view) explain(node string, p *peer.Status) admin.Explain {
	e := admin.Explain{Peer: cmp.Or(node, v.cfg.Node), Notes: []string{}, Streams: v.streams(p)}
	for _, name := range everyTransport {
		tried := admin.ExplainTried{Transport: name, Answer: "refused"}
		t := v.carriers.named(name)
		switch {
		case t == nil && slices.Contains(v.cfg.Transports, name), t == nil && !slices.Contains([]string{"local", "tcp"}, name):
			tried.Reason = absent
		case t == nil:
			tried.Reason = fmt.Sprintf("not on the allow-list (transports = %q)", v.cfg.Transports)
		case p != nil && p.State != "up" && name != "local":
			tried.Answer, tried.Reason = notUp(p)
		default:
			r, barred := t.Probe(node), v.peers.Barred(node, name)
			switch {
			case !r.OK:
				tried.Reason = r.Reason
			case barred != "":
				tried.Reason = barred
			case e.Transport == "":
				tried.Answer, e.Transport = "chosen", name
				e.GBpsIn, e.GBpsOut, e.GBps = r.In, r.Out, max(r.In, r.Out)
			default:
				tried.Answer, tried.Reason = "possible", "a better one was chosen"
			}
		}
		e.Choices = append(e.Choices, tried)
	}
	if p == nil {
		e.Notes = append(e.Notes, "placement: "+v.placementState())
	}
	if p != nil && p.State == "up" {
		explainChannel(&e, p)
	} else {
		v.explainConfigured(&e)
	}
	return e
}

// explainChannel says how the present channel is protected.
func explainChannel(e *admin.Explain, p *peer.Status) {
	e.Secure = p.Secure
	if !e.Secure {
		e.Notes = append(e.Notes, "insecure: the peer did not authenticate itself (loopback addresses alone)")
	}
	e.DataPlain, e.WhyPlain = p.DataPlain, p.WhyPlain
	switch {
	case !p.Secure || !p.DataPlain: // the note above says that it is insecure
	case p.WhyPlain == "loopback":
		e.Notes = append(e.Notes, "data links are not encrypted: both ends are on this machine (loopback addresses; tcp.encrypt_loopback = true on either encrypts them)")
	default:
		e.Notes = append(e.Notes, "data links are not encrypted: both sides say data_plain")
	}
}

// explainConfigured says, where there is no channel, how the next one will be protected.
func (v view) explainConfigured(e *admin.Explain) {
	e.Secure, e.DataPlain = !v.cfg.Insecure, v.cfg.DataPlain || v.cfg.Insecure
	if !e.Secure {
		e.WhyPlain = "insecure"
		e.Notes = append(e.Notes, "insecure is configured: peers do not authenticate themselves (loopback addresses alone)")
	}
	if v.cfg.DataPlain {
		e.WhyPlain = cmp.Or(e.WhyPlain, "data_plain")
		e.Notes = append(e.Notes, "data_plain is configured: data links to peers that say so too are not encrypted")
	}
}

// notUp says why nothing moves to a peer now. A peer that nobody has asked for has nothing the matter with it.
func notUp(p *peer.Status) (answer, reason string) {
	switch {
	case p.Problem != "":
		return "refused", "the peer is " + p.State + ": " + p.Problem
	case p.State == "down":
		return "idle", "not connected: that happens on first use"
	}
	return "refused", "the peer is " + p.State
}

func (cs *carriers) named(name string) transport.Transport {
	for _, t := range cs.list {
		if t.Name() == name {
			return t
		}
	}
	return nil
}
