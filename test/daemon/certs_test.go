package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// cluster is a CA and the files of nodes.
type cluster struct {
	t       *testing.T
	dir, ca string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := tempDir(t)
	c := &cluster{t, dir, filepath.Join(dir, "ca")}
	ctl(t, "", "certs", "init", "--ca", c.ca)
	return c
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

// config writes the configuration of a node that has certificates in the CA's directory.
func (c *cluster) config(node, more string) string {
	c.t.Helper()
	cert, key := pki.NodeFiles(c.ca, node)
	return write(c.t, c.path(node+".toml"), "node = %q\nlisten = \"127.0.0.1:0\"\nmetrics = \"off\"\nsocket = %q\nadmin = %q\n[tls]\nca = %q\ncert = %q\nkey = %q\n%s",
		node, c.path(node+".s"), c.path(node+".m"), filepath.Join(c.ca, pki.CAFile), cert, key, more)
}

func (c *cluster) start(node, more string) *process {
	c.t.Helper()
	return start(c.t, "--config", c.config(node, more))
}

// TestCertificates: what kvpipectl makes, daemons take, and one of another cluster does not get in.
func TestCertificates(t *testing.T) {
	c := newCluster(t)
	for _, n := range []string{"a", "b"} {
		ctl(t, "", "certs", "node", n, "--ca", c.ca)
	}
	a := c.start("a", "")
	b := c.start("b", "[peers.nodes]\na = \""+a.attr("listen")+"\"\n")
	if out := ctl(t, c.path("b.m"), "bench", "a", "--seconds", "0.001", "--sizes", "4096"); strings.Count(out, "GB/s") != 2 {
		t.Errorf("bench:\n%s", out)
	}
	peers := ask[[]admin.Peer](t, c.path("b.m"), "peers")
	// The data links lie between loopback addresses, where nobody listens in.
	if len(peers) != 1 || !peers[0].Secure || !peers[0].DataPlain {
		t.Errorf("b's peers: %+v", peers)
	}
	s := ask[admin.Status](t, c.path("a.m"), "status")
	if s.Certificate == nil || s.Certificate.Problem != "" || time.Until(s.Certificate.Until) < 300*24*time.Hour || s.Insecure || len(s.Warnings) != 0 {
		t.Errorf("a's status: %+v", s)
	}

	stranger := newCluster(t)
	ctl(t, "", "certs", "node", "b", "--ca", stranger.ca) // even by the same name
	x := stranger.start("b", "[peers.nodes]\na = \""+a.attr("listen")+"\"\n")
	out, err := tryCtl(t, stranger.path("b.m"), "bench", "a", "--seconds", "0.001")
	if err == nil || !strings.Contains(out, "certificate") {
		t.Errorf("a stranger: %v\n%s", err, out)
	}
	x.stop()
	b.stop()
	a.stop()
}

// TestCertificateReload: new files serve at the next handshake, without a signal; bad ones change nothing, and are told.
func TestCertificateReload(t *testing.T) {
	c := newCluster(t)
	ctl(t, "", "certs", "node", "a", "--ca", c.ca, "--days", "30")
	a := c.start("a", "")
	before := c.handshake(a.attr("listen"))
	ctl(t, "", "certs", "node", "a", "--ca", c.ca, "--days", "90")
	after := c.handshake(a.attr("listen"))
	if after.SerialNumber.Cmp(before.SerialNumber) == 0 || !after.NotAfter.After(before.NotAfter) {
		t.Errorf("certificate %s until %s before, %s until %s after", before.SerialNumber, before.NotAfter, after.SerialNumber, after.NotAfter)
	}
	cert, _ := pki.NodeFiles(c.ca, "a")
	write(t, cert, "nonsense")
	if still := c.handshake(a.attr("listen")); still.SerialNumber.Cmp(after.SerialNumber) != 0 {
		t.Errorf("a bad file is served as %s", still.SerialNumber)
	}
	s := ask[admin.Status](t, c.path("a.m"), "status")
	if s.Certificate.Problem == "" || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "certificate:") {
		t.Errorf("status of a daemon with bad files: %+v", s)
	}
	a.stop()
}

// handshake returns the certificate that a daemon shows.
func (c *cluster) handshake(addr string) *x509.Certificate {
	c.t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"kvpipe/1"}})
	if err != nil { // that the daemon will not have a client without a certificate comes later
		c.t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// TestExpiredCertificate: the daemon says since when, shows it to nobody, and serves its own node; with a good one it has peers again.
func TestExpiredCertificate(t *testing.T) {
	c := newCluster(t)
	if err := pki.IssueNode(c.ca, c.ca, "a", nil, -time.Minute); err != nil {
		t.Fatal(err)
	}
	if out, err := check(t, c.config("a", "")); err == nil || !strings.Contains(out, "a.crt: certificate \"CN=a,O=kvpipe\" expired on ") {
		t.Errorf("--check-config: %s, %v", out, err)
	}
	ctl(t, "", "certs", "node", "b", "--ca", c.ca)
	b := c.start("b", "")
	a := c.start("a", "[peers.nodes]\nb = \""+b.attr("listen")+"\"\n")
	a.await("until its certificate files are good")
	out := ctl(t, c.path("a.m"), "bench", "a", "--seconds", "0.001", "--sizes", "4096")
	if !strings.Contains(out, "GB/s") {
		t.Errorf("hand-overs within the node:\n%s", out)
	}
	if out, err := tryCtl(t, c.path("a.m"), "bench", "b", "--seconds", "0.001", "--sizes", "4096"); err == nil || !strings.Contains(out, "expired on ") {
		t.Errorf("a peer: %v\n%s", err, out)
	}
	if conn, err := tls.Dial("tcp", a.attr("listen"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"kvpipe/1"}}); err == nil {
		_ = conn.Close()
		t.Error("a peer was shown a certificate")
	}
	if s := ask[admin.Status](t, c.path("a.m"), "status"); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "expired on ") {
		t.Errorf("warnings: %q", s.Warnings)
	}
	ctl(t, "", "certs", "node", "a", "--ca", c.ca)
	if out := ctl(t, c.path("a.m"), "bench", "b", "--seconds", "0.001", "--sizes", "4096"); !strings.Contains(out, "GB/s") {
		t.Errorf("with a good certificate:\n%s", out)
	}
	a.stop()
	b.stop()
}

// TestCertificateSoonOver: an operator is warned before.
func TestCertificateSoonOver(t *testing.T) {
	c := newCluster(t)
	ctl(t, "", "certs", "node", "a", "--ca", c.ca, "--days", "3")
	p := c.start("a", "")
	s := ask[admin.Status](t, c.path("a.m"), "status")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "a.crt ends in 72h") {
		t.Errorf("warnings: %q", s.Warnings)
	}
	p.stop()
}
