package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// UntrustedError says that a certificate is not good, or missing.
type UntrustedError struct{ why error }

func (e *UntrustedError) Error() string { return e.why.Error() }
func (e *UntrustedError) Unwrap() error { return e.why }

var errNone = errors.New("the peer sent no certificate")

// NodeName returns the node that a certificate names as its holder: its first DNS name.
func NodeName(c *x509.Certificate) (string, error) {
	if len(c.DNSNames) == 0 {
		return "", fmt.Errorf("certificate %q has no DNS name that could name a node", c.Subject)
	}
	if err := CheckName(c.DNSNames[0]); err != nil {
		return "", fmt.Errorf("certificate %q: %w", c.Subject, err)
	}
	return c.DNSNames[0], nil
}

// CheckName refuses what cannot be a node's name in a certificate, or part of a file's name.
func CheckName(node string) error {
	if node == "" || len(node) > 255 || strings.HasPrefix(node, ".") || strings.ContainsFunc(node, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r > 0x7e || strings.ContainsRune(`:/\`, r)
	}) {
		return fmt.Errorf("node name %q: give 1 to 255 ASCII characters without spaces, colons or slashes, not beginning with a dot", node)
	}
	return nil
}

// PeerNode returns the name of the authenticated peer.
func PeerNode(cs tls.ConnectionState) (string, error) {
	if len(cs.PeerCertificates) == 0 {
		return "", &UntrustedError{errNone}
	}
	return NodeName(cs.PeerCertificates[0])
}

// verify checks the dates and the chain, and returns the certificate of the chain that ends first. The error is an
// UntrustedError.
func verify(leaf *x509.Certificate, more []*x509.Certificate, roots *x509.CertPool) (ends *x509.Certificate, err error) {
	now := time.Now()
	switch {
	case now.After(leaf.NotAfter):
		return nil, &UntrustedError{expired(leaf)}
	case now.Before(leaf.NotBefore):
		return nil, &UntrustedError{fmt.Errorf("certificate %q is valid from %s on only: is the clock right?", leaf.Subject, leaf.NotBefore.Format(time.DateTime))}
	}
	return signed(leaf, more, roots, now)
}

// StillSigned judges what a peer showed when its connection was opened, its certificate and those between it and a CA,
// by the present CAs. It accepts certificates that have expired since.
func StillSigned(shown []*x509.Certificate, roots *x509.CertPool, opened time.Time) error {
	if len(shown) == 0 {
		return &UntrustedError{errNone}
	}
	_, err := signed(shown[0], shown[1:], roots, opened)
	if err == nil {
		return nil
	}
	now := time.Now()
	lasts := make([]*x509.Certificate, len(shown))
	for i, c := range shown {
		lasts[i] = c
		if c.NotAfter.Before(now) && !c.NotAfter.Before(opened) {
			longer := *c
			longer.NotAfter = now
			lasts[i] = &longer
		}
	}
	if _, again := signed(lasts[0], lasts[1:], roots, now); again == nil {
		return nil // signed by a CA whose certificate has been renewed since, perhaps when what was shown had expired
	}
	return err
}

// signed looks for chains of certificates that are all valid at that time. It takes the chain that lasts longest, and
// returns its certificate that ends first.
func signed(leaf *x509.Certificate, more []*x509.Certificate, roots *x509.CertPool, at time.Time) (ends *x509.Certificate, err error) {
	between := x509.NewCertPool()
	for _, c := range more {
		between.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown): // with or without a known CA of that name; x509's text would mislead
		return nil, &UntrustedError{fmt.Errorf("certificate %q, issued by %q: unknown authority: no CA in this node's ca file signed it", leaf.Subject, leaf.Issuer)}
	case err != nil:
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.Expired && at.After(invalid.Cert.NotAfter) {
			err = fmt.Errorf("its CA's %w", expired(invalid.Cert)) // x509 does not say whose certificate
		}
		return nil, &UntrustedError{fmt.Errorf("certificate %q, issued by %q: %w", leaf.Subject, leaf.Issuer, err)}
	}
	for _, chain := range chains {
		if first := first(chain); ends == nil || first.NotAfter.After(ends.NotAfter) {
			ends = first
		}
	}
	return ends, nil
}

// first returns the certificate of a chain that ends first. If several end together it is the last of them, without
// which the others cannot be renewed.
func first(chain []*x509.Certificate) *x509.Certificate {
	ends := chain[0]
	for _, c := range chain[1:] {
		if !c.NotAfter.After(ends.NotAfter) {
			ends = c
		}
	}
	return ends
}

func expired(c *x509.Certificate) error {
	return fmt.Errorf("certificate %q expired on %s", c.Subject, c.NotAfter.Format(time.DateTime))
}
