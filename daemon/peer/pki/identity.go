package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Identity is a node's certificate and the CAs that it trusts. The files are read again when they change. Safe for
// concurrent use.
type Identity struct {
	files [3]string // in the order of settings
	node  string

	mu      sync.Mutex
	stamp   [3]fs.FileInfo
	now     papers
	lastErr error
}

// settings are the configuration's names of the files.
var settings = [3]string{"tls.ca", "tls.cert", "tls.key"}

// papers are what the three files contained at one time.
type papers struct {
	pair  *tls.Certificate
	roots *x509.CertPool
	ends  *x509.Certificate // the certificate of the pair's chain that ends first
}

// Open reads the three files and checks that they fit together, are valid now, and that the certificate names the node.
// An error says what is wrong with them. The identity that comes with an error is not Ready until the files are
// replaced by good ones.
func Open(ca, cert, key, node string) (*Identity, error) {
	id := &Identity{files: [3]string{ca, cert, key}, node: node}
	return id, id.Ready()
}

// Ready reads the files if they have changed, and returns nil if there is a certificate to show to peers. Once there is
// one, there always is.
func (id *Identity) Ready() error {
	if id.current().pair != nil {
		return nil
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.lastErr
}

// Valid is Ready for a caller that is about to show the certificate. The error says that there is none, or that it has
// ended while in use.
func (id *Identity) Valid() error {
	if err := id.Ready(); err != nil {
		return err
	}
	return id.ended(id.current())
}

// ended returns an error if a certificate that was good has ended.
func (id *Identity) ended(p papers) error {
	switch {
	case !time.Now().After(p.ends.NotAfter):
		return nil
	case p.ends == p.pair.Leaf:
		return fmt.Errorf("%s: %w: make it anew (kvpipectl certs node %s)", id.files[1], expired(p.ends), id.node)
	}
	return fmt.Errorf("%s: its CA's %w: make another CA and new certificates of all nodes (kvpipectl certs)", id.files[1], expired(p.ends))
}

// Config returns the TLS configuration for one connection, in either role. The identity must be Ready. It uses the
// files as they are now, or the last good ones if these cannot be used. The caller must read from the connection's
// state who the peer is (PeerNode).
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
		// The first records after a pause would be 1.4 KB, for readers that can use a part of a page. No reader here
		// can.
		DynamicRecordSizingDisabled: true,
		// Always the one certificate, whatever CAs the server lists. If it is the wrong one, the server says so.
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

// Roots returns the CAs as they are now. Whenever the files are read again, it is another pool. nil: none were good so
// far.
func (id *Identity) Roots() *x509.CertPool { return id.current().roots }

// Problem returns when the certificate in use ends, or its CA's if that is earlier (zero: there is none), and what is
// wrong: that it has ended, or why the files on disk are not those in use.
func (id *Identity) Problem() (until time.Time, err error) {
	p := id.current()
	id.mu.Lock()
	defer id.mu.Unlock()
	if p.pair == nil {
		return until, id.lastErr
	}
	return p.ends.NotAfter, errors.Join(id.ended(p), id.lastErr)
}

// Outlived returns the name of the CA whose certificate ends no later than the node's, and so limits it. "": there is
// none.
func (id *Identity) Outlived() string {
	if p := id.current(); p.pair != nil && p.ends != p.pair.Leaf {
		return p.ends.Subject.String()
	}
	return ""
}

// current returns the papers on disk, or the last good ones.
func (id *Identity) current() papers {
	err := id.refresh()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.lastErr = err
	return id.now
}

// refresh reads the files if they have changed. It uses only files that are good in every respect.
func (id *Identity) refresh() error {
	var stamp [3]fs.FileInfo
	var bad error
	var absent, denied bool
	for i, path := range id.files {
		st, err := os.Stat(path)
		switch {
		case err != nil:
			absent, denied = absent || errors.Is(err, fs.ErrNotExist), denied || errors.Is(err, fs.ErrPermission)
			bad = errors.Join(bad, fmt.Errorf("%s: %w", settings[i], err))
		case !st.Mode().IsRegular(): // reading a FIFO would take for ever
			bad = errors.Join(bad, fmt.Errorf("%s: %s is no file (%v)", settings[i], path, st.Mode()))
		}
		stamp[i] = st
	}
	switch { // the remedy once, for all files
	case denied:
		return fmt.Errorf("%w: user %d, who runs this, may not look into a folder above: let that user (chown or chmod the folder), or copy the files to /etc/kvpipe", bad, os.Geteuid())
	case absent:
		return fmt.Errorf("%w: make what is missing with \"kvpipectl certs\" and copy it there, or correct [tls] in the configuration", bad)
	case bad != nil:
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
	if err == nil {
		err = whole(cert, certPEM)
	}
	if err != nil {
		return p, err
	}
	keyPEM, err := readPrivate(key)
	if err != nil {
		return p, err
	}
	if encrypted(keyPEM) {
		return p, fmt.Errorf("%s: a private key under a passphrase, which nobody is there to give: write it without one (openssl pkey)", key)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return p, fmt.Errorf("%s with %s: %w: copy both here as one \"kvpipectl certs node %s\" has made them", cert, key, err, id.node)
	}
	p.pair = &pair
	name, err := NodeName(pair.Leaf)
	if err != nil {
		return p, fmt.Errorf("%s: %w", cert, err)
	}
	if name != id.node {
		return p, fmt.Errorf("%s is the certificate of node %q, but this node is %q: set node, or issue one with \"kvpipectl certs node %s\"", cert, name, id.node, id.node)
	}
	if !pair.Leaf.IsCA && !slices.ContainsFunc(cas, func(c *x509.Certificate) bool { return !c.Equal(pair.Leaf) }) {
		// It vouches for itself, and so would be found good, but it does so for nobody else.
		return p, fmt.Errorf("%s holds the certificate of this node alone, by which no other node can be known: copy the CA's here (%s of \"kvpipectl certs init\")", ca, CAFile)
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
