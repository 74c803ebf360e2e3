package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Identity is a node's certificate and the CA that it trusts, read again when the files change. Safe for concurrent use.
type Identity struct {
	ca, cert, key string

	mu      sync.Mutex
	stamp   [3]fileStamp
	pair    *tls.Certificate
	roots   *x509.CertPool
	lastErr error
}

type fileStamp struct {
	mod  time.Time
	size int64
}

// Open reads the three files and checks that they fit together, are valid now, and that the certificate names the node.
func Open(ca, cert, key, node string) (*Identity, error) {
	id := &Identity{ca: ca, cert: cert, key: key}
	if err := id.refresh(); err != nil {
		return nil, err
	}
	name, err := NodeName(id.pair.Leaf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cert, err)
	}
	if name != node {
		return nil, fmt.Errorf("%s is the certificate of node %q, but this node is %q: set node, or issue one with \"kvpipectl certs node %s\"", cert, name, node, node)
	}
	if _, err := verify(id.pair.Leaf, nil, id.roots); err != nil {
		return nil, fmt.Errorf("%s: %w", cert, err)
	}
	return id, nil
}

// NodeName is who a certificate says its holder is: the first DNS name.
func NodeName(c *x509.Certificate) (string, error) {
	if len(c.DNSNames) == 0 {
		return "", fmt.Errorf("certificate %q has no DNS name that could name a node", c.Subject)
	}
	return c.DNSNames[0], nil
}

// Config returns the TLS configuration for both roles. Chains are verified against the CA as it is at the time of the handshake;
// who the peer is, is for the caller to read from the connection's state (PeerNode).
func (id *Identity) Config(protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protos,
		ClientAuth: tls.RequireAnyClientCert,
		// Verified in VerifyConnection, for both roles alike: node names, not host names, say who a peer is.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return id.current()
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return id.current()
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("the peer sent no certificate")
			}
			id.mu.Lock()
			roots := id.roots
			id.mu.Unlock()
			_, err := verify(cs.PeerCertificates[0], cs.PeerCertificates[1:], roots)
			return err
		},
	}
}

// PeerNode returns the name of the authenticated peer.
func PeerNode(cs tls.ConnectionState) (string, error) {
	if len(cs.PeerCertificates) == 0 {
		return "", errors.New("the peer sent no certificate")
	}
	return NodeName(cs.PeerCertificates[0])
}

func verify(leaf *x509.Certificate, more []*x509.Certificate, roots *x509.CertPool) (string, error) {
	between := x509.NewCertPool()
	for _, c := range more {
		between.AddCert(c)
	}
	now := time.Now()
	switch {
	case now.After(leaf.NotAfter):
		return "", fmt.Errorf("certificate %q expired on %s", leaf.Subject, leaf.NotAfter.Format(time.DateTime))
	case now.Before(leaf.NotBefore):
		return "", fmt.Errorf("certificate %q is valid from %s on only: is the clock right?", leaf.Subject, leaf.NotBefore.Format(time.DateTime))
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return "", fmt.Errorf("certificate %q, issued by %q: %w", leaf.Subject, leaf.Issuer, err)
	}
	return NodeName(leaf)
}

// current returns the certificate as it is on disk. While the files cannot be read, the last good one serves.
func (id *Identity) current() (*tls.Certificate, error) {
	err := id.refresh()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.lastErr = err
	return id.pair, nil
}

// Problem returns why the files could not be read again, or nil, and when the certificate ends.
func (id *Identity) Problem() (until time.Time, err error) {
	_, _ = id.current()
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.pair.Leaf.NotAfter, id.lastErr
}

func (id *Identity) refresh() error {
	var stamp [3]fileStamp
	for i, p := range []string{id.ca, id.cert, id.key} {
		st, err := os.Stat(p)
		if err != nil {
			return fmt.Errorf("certificate file: %w", err)
		}
		stamp[i] = fileStamp{st.ModTime(), st.Size()}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if stamp == id.stamp {
		return nil
	}
	cas, err := ReadCertificates(id.ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	for _, c := range cas {
		roots.AddCert(c)
	}
	pair, err := tls.LoadX509KeyPair(id.cert, id.key)
	if err != nil {
		return fmt.Errorf("%s with %s: %w", id.cert, id.key, err)
	}
	id.stamp, id.pair, id.roots = stamp, &pair, roots
	return nil
}
