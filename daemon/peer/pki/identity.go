package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Identity is a node's certificate and the CA that it trusts, read again when the files change. Safe for concurrent use.
type Identity struct {
	files [3]string // as in settings
	node  string

	mu      sync.Mutex
	stamp   [3]fs.FileInfo
	now     papers
	lastErr error
}

// settings name the files in the configuration.
var settings = [3]string{"tls.ca", "tls.cert", "tls.key"}

// papers are what was read from the three files at one time.
type papers struct {
	pair  *tls.Certificate
	roots *x509.CertPool
	ends  *x509.Certificate // what of the pair's chain ends first
}

// Open reads the three files and checks that they fit together, are valid now, and that the certificate names the node. An error says
// what is wrong with them; the identity that comes with it is not Ready until they have been replaced by good ones.
func Open(ca, cert, key, node string) (*Identity, error) {
	id := &Identity{files: [3]string{ca, cert, key}, node: node}
	return id, id.Ready()
}

// Ready reads the files if they changed and returns nil when there is something to show to peers. Once there was, there always is.
func (id *Identity) Ready() error {
	if id.current().pair != nil {
		return nil
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.lastErr
}

// Valid is Ready for who is about to show the certificate: an error says that there is none, or that it ended while it was in use.
func (id *Identity) Valid() error {
	if err := id.Ready(); err != nil {
		return err
	}
	return id.ended(id.current())
}

// ended says that a certificate was good, and is no more.
func (id *Identity) ended(p papers) error {
	switch {
	case !time.Now().After(p.ends.NotAfter):
		return nil
	case p.ends == p.pair.Leaf:
		return fmt.Errorf("%s: %w: make it anew (kvpipectl certs node %s)", id.files[1], expired(p.ends), id.node)
	}
	return fmt.Errorf("%s: its CA's %w: make another CA and new certificates of all nodes (kvpipectl certs)", id.files[1], expired(p.ends))
}

// Config returns the TLS configuration for one connection in either role of an identity that is Ready, with the files as they are now:
// while they cannot be used, the last good ones serve. Who the peer is, is for the caller to read from the connection's state (PeerNode).
func (id *Identity) Config(protos ...string) *tls.Config {
	p := id.current()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   protos,
		Certificates: []tls.Certificate{*p.pair},
		ClientAuth:   tls.RequireAnyClientCert,
		// Verified in VerifyConnection, for both roles alike: node names, not host names, say who a peer is.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		// The first records after a rest would be of 1.4 KB, for readers that begin with a part of a page. Here nobody does.
		DynamicRecordSizingDisabled: true,
		// The only certificate there is, whatever the server says of CAs: if it is not the right one, it says so.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.pair, nil },
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return &UntrustedError{errNone}
			}
			_, err := verify(cs.PeerCertificates[0], cs.PeerCertificates[1:], p.roots)
			return err
		},
	}
}

// Roots are the CAs as they are now; another pool whenever the files were read again. nil: none were good so far.
func (id *Identity) Roots() *x509.CertPool { return id.current().roots }

// Problem returns when the certificate in use ends, or its CA's if that is before (zero: there is none), and what is wrong: that it has
// ended, or why the files on disk are not those in use.
func (id *Identity) Problem() (until time.Time, err error) {
	p := id.current()
	id.mu.Lock()
	defer id.mu.Unlock()
	if p.pair == nil {
		return until, id.lastErr
	}
	return p.ends.NotAfter, errors.Join(id.ended(p), id.lastErr)
}

// Outlived is the name of the CA whose certificate ends no later than the node's, which is good no longer. "": none does.
func (id *Identity) Outlived() string {
	if p := id.current(); p.pair != nil && p.ends != p.pair.Leaf {
		return p.ends.Subject.String()
	}
	return ""
}

// current returns the papers as they are on disk, or the last good ones.
func (id *Identity) current() papers {
	err := id.refresh()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.lastErr = err
	return id.now
}

// refresh reads the files if they changed. What is not good in every respect is not used.
func (id *Identity) refresh() error {
	var stamp [3]fs.FileInfo
	var bad error
	for i, path := range id.files {
		st, err := os.Stat(path)
		switch {
		case err != nil:
			bad = errors.Join(bad, fmt.Errorf("%s: %w: make it with \"kvpipectl certs\" and copy it there, or correct [tls] in the configuration", settings[i], err))
		case !st.Mode().IsRegular(): // to read a FIFO would take for ever
			bad = errors.Join(bad, fmt.Errorf("%s: %s is no file (%v)", settings[i], path, st.Mode()))
		}
		stamp[i] = st
	}
	if bad != nil {
		return bad
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if sameFiles(stamp, id.stamp) {
		return nil
	}
	p, err := id.read()
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: the daemon's user has to be able to read it (chown; mode 600 for the key)", err)
	}
	if err != nil {
		return err
	}
	id.stamp, id.now = stamp, p
	return nil
}

func sameFiles(a, b [3]fs.FileInfo) bool {
	for i := range a {
		if b[i] == nil || !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() || a[i].Mode() != b[i].Mode() {
			return false
		}
	}
	return true
}

// read reads and checks all three files.
func (id *Identity) read() (p papers, err error) {
	ca, cert, key := id.files[0], id.files[1], id.files[2]
	cas, err := ReadCertificates(ca)
	if err != nil {
		return p, err
	}
	p.roots = x509.NewCertPool()
	for _, c := range cas {
		p.roots.AddCert(c)
	}
	certPEM, err := os.ReadFile(cert)
	if err != nil {
		return p, err
	}
	keyPEM, err := readPrivate(key)
	if err != nil {
		return p, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return p, fmt.Errorf("%s with %s: %w", cert, key, err)
	}
	p.pair = &pair
	name, err := NodeName(pair.Leaf)
	if err != nil {
		return p, fmt.Errorf("%s: %w", cert, err)
	}
	if name != id.node {
		return p, fmt.Errorf("%s is the certificate of node %q, but this node is %q: set node, or issue one with \"kvpipectl certs node %s\"", cert, name, id.node, id.node)
	}
	var more []*x509.Certificate
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return p, fmt.Errorf("%s: %w", cert, err)
		}
		more = append(more, c)
	}
	if p.ends, err = verify(pair.Leaf, more, p.roots); err != nil {
		return p, fmt.Errorf("%s, with the CA in %s: %w", cert, ca, err)
	}
	return p, nil
}
