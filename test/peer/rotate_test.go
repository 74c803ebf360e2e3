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
	"github.com/kvpipe/kvpipe/test/cluster"
)

// shown is the serial number of the certificate that the daemon shows to whoever connects now.
func shown(n *cluster.Node) (serial string) {
	n.T.Helper()
	d := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		},
	}}
	ctx, cancel := context.WithTimeout(context.Background(), cluster.Patience)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", n.Addr)
	if err == nil {
		_ = conn.Close()
	}
	if serial == "" {
		n.T.Fatalf("node %s shows no certificate: %v", n.Name, err)
	}
	return serial
}

// From one CA to another, under running daemons, step by step: both CAs trusted, new certificates, the old CA gone. Hand-overs go on,
// on open channels and on new ones.
func TestCertificatesAreReplacedUnderRunningDaemons(t *testing.T) {
	c := cluster.New(t)
	a := c.Node("a")
	b := c.Node("b", a).Start()
	a.Start()
	producer, consumer := join(b, "prefill"), join(a, "decode")
	step := func(what string) {
		t.Helper()
		handOver(producer, consumer, b.Addr, blocks)
		b.Kill() // the next channel makes a new handshake
		b.Start()
		producer = join(b, "prefill")
		consumer.submitTake(what, b.Addr)
		producer.submitOffer(what)
		consumer.collect(1)
		producer.collect(1)
		for _, n := range []*cluster.Node{a, b} {
			if p := problem(n); p != "" {
				t.Errorf("%s: %s has a problem with its certificate: %s", what, n.Name, p)
			}
		}
	}
	handOver(consumer, producer, "a", 1) // b dials a
	step("before")

	next := filepath.Join(c.Dir, "next")
	if err := pki.Init(next, "the next CA", time.Hour); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.CA(), pki.CAFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	older, newer := read(t, filepath.Join(c.CA(), pki.CAFile)), read(t, filepath.Join(next, pki.CAFile))
	write(older + newer)
	step("both CAs")
	for _, n := range []*cluster.Node{a, b} {
		before := shown(n)
		if err := pki.IssueNode(next, c.CA(), n.Name, nil, 30*24*time.Hour); err != nil {
			t.Fatal(err)
		}
		if shown(n) == before {
			t.Errorf("%s shows its old certificate", n.Name)
		}
		step("new certificate of " + n.Name)
	}
	write(newer)
	step("the new CA alone")

	// What is broken then is told, and changes nothing.
	good := shown(a)
	if err := os.WriteFile(filepath.Join(c.CA(), "a.crt"), []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	if shown(a) != good {
		t.Error("a shows something else")
	}
	if p := problem(a); !strings.Contains(p, "a.crt") {
		t.Errorf("a's problem: %q", p)
	}
	handOver(producer, consumer, b.Addr, blocks)

	// Whose CA is gone without that has no channel any more: b still shows what the one before signed.
	last := filepath.Join(c.Dir, "last")
	if err := pki.Init(last, "the last CA", time.Hour); err != nil {
		t.Fatal(err)
	}
	write(read(t, filepath.Join(last, pki.CAFile)))
	if err := pki.IssueNode(last, c.CA(), "a", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "a has no channel with b", func() bool { return a.Peer("b").State != "up" })
	a.Says("peer down", "peer=b", "is not trusted any more", "unknown authority")
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
func problem(n *cluster.Node) string {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cluster.Patience)
	defer cancel()
	var s admin.Status
	if err := n.Ctl.Get(ctx, "status", nil, &s); err != nil {
		n.T.Fatal(err)
	}
	return s.Certificate.Problem
}
