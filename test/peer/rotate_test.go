package peer

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// shown is the serial number of the certificate that the daemon shows to whoever connects now.
func (n *node) shown() (serial string) {
	n.t.Helper()
	d := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		},
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", n.addr)
	if err == nil {
		_ = conn.Close()
	}
	if serial == "" {
		n.t.Fatalf("node %s shows no certificate: %v", n.name, err)
	}
	return serial
}

// From one CA to another, under running daemons, step by step: both CAs trusted, new certificates, the old CA gone. Hand-overs go on,
// on open channels and on new ones.
func TestCertificatesAreReplacedUnderRunningDaemons(t *testing.T) {
	c := newCluster(t)
	a := c.node("a")
	b := c.node("b", a).start()
	a.start()
	producer, consumer := b.join("prefill"), a.join("decode")
	step := func(what string) {
		t.Helper()
		handOver(producer, consumer, b.addr, blocks)
		b.kill() // the next channel makes a new handshake
		b.start()
		producer = b.join("prefill")
		consumer.submitTake(what, b.addr)
		producer.submitOffer(what)
		consumer.collect(1)
		producer.collect(1)
		for _, n := range []*node{a, b} {
			if p := n.problem(); p != "" {
				t.Errorf("%s: %s has a problem with its certificate: %s", what, n.name, p)
			}
		}
	}
	handOver(consumer, producer, "a", 1) // b dials a
	step("before")

	next := filepath.Join(c.dir, "next")
	if err := pki.Init(next, "the next CA", time.Hour); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.ca(), pki.CAFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	older, newer := read(t, filepath.Join(c.ca(), pki.CAFile)), read(t, filepath.Join(next, pki.CAFile))
	write(older + newer)
	step("both CAs")
	for _, n := range []*node{a, b} {
		before := n.shown()
		if err := pki.IssueNode(next, c.ca(), n.name, nil, 30*24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if n.shown() == before {
			t.Errorf("%s shows its old certificate", n.name)
		}
		step("new certificate of " + n.name)
	}
	write(newer)
	step("the new CA alone")

	// What is broken then is told, and changes nothing.
	good := a.shown()
	if err := os.WriteFile(filepath.Join(c.ca(), "a.crt"), []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a.shown() != good {
		t.Error("a shows something else")
	}
	if p := a.problem(); !strings.Contains(p, "a.crt") {
		t.Errorf("a's problem: %q", p)
	}
	handOver(producer, consumer, b.addr, blocks)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// problem is what the daemon says of its certificate.
func (n *node) problem() string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var s admin.Status
	if err := n.ctl.Get(ctx, "status", nil, &s); err != nil {
		n.t.Fatal(err)
	}
	return s.Certificate.Problem
}
