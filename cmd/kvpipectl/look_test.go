package main

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
)

// TestNoCertificateToUse has no end, but a reason.
func TestNoCertificateToUse(t *testing.T) {
	src := &admintest.Source{S: admin.Status{Certificate: &admin.Certificate{File: "a.crt", Problem: "the key is another's"}}}
	socket := admintest.Serve(t, src)
	if out, err := ctlRun(t.Context(), "status", "--admin", socket); err != nil || !strings.Contains(out, "certificate  a.crt, not usable: the key is another's\n") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := ctlRun(t.Context(), "status", "--json", "--admin", socket); err != nil || strings.Contains(out, `"until"`) {
		t.Errorf("%q, %v", out, err)
	}
}

// TestSecure: links are plain for a reason, which is not always the configuration.
func TestSecure(t *testing.T) {
	for want, p := range map[string]admin.Peer{
		"yes":                  {Secure: true},
		"control (loopback)":   {Secure: true, DataPlain: true, WhyPlain: "loopback"},
		"control (data_plain)": {Secure: true, DataPlain: true}, // of an older daemon
		"no (insecure)":        {DataPlain: true, WhyPlain: "insecure"},
	} {
		if got := secure(&p); got != want {
			t.Errorf("%+v: %s, want %s", p, got, want)
		}
	}
}

// TestExplainOfAnIdlePeer: nothing is the matter with it, and the first line says what connects.
func TestExplainOfAnIdlePeer(t *testing.T) {
	tried := []admin.ExplainTried{{Transport: "rdma", Answer: "refused", Reason: "not part of this build"}, {Transport: "tcp", Answer: "idle", Reason: "not connected: that happens on first use"}}
	socket := admintest.Serve(t, &admintest.Source{E: admin.Explain{Peer: "node-b", Choices: tried}})
	out, err := ctlRun(t.Context(), "explain", "--admin", socket)
	if first, _, _ := strings.Cut(out, "\n"); err != nil || first != `node-b: idle, not connected: the first hand-over or "kvpipectl bench node-b" connects` {
		t.Errorf("%q, %v", out, err)
	}
}
