// Package pki makes and reads the certificates by which daemons know each other: one private CA for a cluster, and one
// certificate for each node, whose first DNS name is the node's name.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// File names within a directory of certificates.
const (
	CAFile    = "ca.crt"
	CAKeyFile = "ca.key"
)

// NodeFiles returns the paths of a node's certificate and key in dir.
func NodeFiles(dir, node string) (cert, key string) {
	return filepath.Join(dir, node+".crt"), filepath.Join(dir, node+".key")
}

// Init makes a CA in dir: ca.crt (to copy to every node) and ca.key (to keep away from them). It refuses to replace
// one. The name in the certificate includes the beginning of the key's hash, so that "issued by" tells CAs of one name
// apart.
func Init(dir, name string, life time.Duration) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make CA directory: %w", err)
	}
	caPath, keyPath := filepath.Join(dir, CAFile), filepath.Join(dir, CAKeyFile)
	for _, p := range []string{caPath, keyPath} {
		if _, err := os.Stat(p); err == nil {
			return fmt.Errorf("%s: %w: remove it first if all nodes shall get new certificates", p, fs.ErrExist)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := selfSigned(name, life, key)
	if err != nil {
		return err
	}
	return writePair(keyPath, key, caPath, der)
}

// Finish makes the certificate of a CA of which Init, interrupted, made only the key.
func Finish(dir, name string, life time.Duration) error {
	key, err := loadKey(dir)
	if err != nil {
		return err
	}
	der, err := selfSigned(name, life, key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, CAFile), "CERTIFICATE", 0o644, der)
}

// selfSigned returns the certificate of a CA with that key.
func selfSigned(name string, life time.Duration, key crypto.Signer) ([]byte, error) {
	full, err := caName(name, key.Public())
	if err != nil {
		return nil, err
	}
	t, err := template(full, life)
	if err != nil {
		return nil, err
	}
	return signCA(t, key)
}

func caName(name string, key crypto.PublicKey) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(public)
	return fmt.Sprintf("%s %x", name, hash[:4]), nil
}

func signCA(t *x509.Certificate, key crypto.Signer) ([]byte, error) {
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	return der, nil
}

// Renew makes the certificate of the CA in dir anew, if it ends before the time before and Init made it under that
// name. It leaves others alone: they may hold fields that would be lost. Name and key stay, so for everyone who reads
// the new certificate, what the CA has signed is as good as before.
func Renew(dir, name string, before time.Time, life time.Duration) error {
	cas, key, err := loadCA(dir)
	if err != nil || !cas[0].NotAfter.Before(before) {
		return err
	}
	full, err := caName(name, key.Public())
	if err != nil || cas[0].Subject.CommonName != full {
		return err
	}
	t, err := template("", life)
	if err != nil {
		return err
	}
	t.RawSubject = cas[0].RawSubject
	der, err := signCA(t, key)
	if err != nil {
		return err
	}
	all := [][]byte{der}
	for _, other := range cas[1:] {
		all = append(all, other.Raw)
	}
	return writePEM(filepath.Join(dir, CAFile), "CERTIFICATE", 0o644, all...)
}

// maxFileName is how long a file's name may be (NAME_MAX).
const maxFileName = 255

// IssueNode makes NAME.crt and NAME.key in out, signed by the CA in dir, valid for the node's name and for hosts (names
// or addresses). It replaces an existing certificate of that name. The certificate ends with the CA's at the latest.
func IssueNode(dir, out, node string, hosts []string, life time.Duration) error {
	if err := CheckName(node); err != nil {
		return err
	}
	switch cert, _ := NodeFiles("", node); {
	case len(cert) > maxFileName:
		return fmt.Errorf("node name %q of %d bytes: give one of at most %d, for the names of its files", node, len(node), maxFileName-len(filepath.Ext(cert)))
	case cert == CAFile: // wherever out is: the CA's certificate is copied beside the node's
		return fmt.Errorf("node name %q: its files would be %s and %s, which are the CA's: give the node another name", node, CAFile, CAKeyFile)
	}
	cas, caKey, err := loadCA(dir)
	if err != nil {
		return err
	}
	ca := cas[0]
	if err := os.MkdirAll(out, 0o700); err != nil {
		return fmt.Errorf("make certificate directory: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t, err := template(node, life)
	if err != nil {
		return err
	}
	if time.Now().After(ca.NotAfter) {
		return fmt.Errorf("%s: %w: make another CA (kvpipectl certs init)", filepath.Join(dir, CAFile), expired(ca))
	}
	if t.NotAfter.After(ca.NotAfter) {
		t.NotAfter = ca.NotAfter
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames = []string{node}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h != node {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, key.Public(), caKey)
	if err != nil {
		return fmt.Errorf("make certificate of node %q: %w", node, err)
	}
	certPath, keyPath := NodeFiles(out, node)
	return writePair(keyPath, key, certPath, der)
}

func template(name string, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"kvpipe"}},
		NotBefore:    now.Add(-5 * time.Minute), // the nodes' clocks differ a little
		NotAfter:     now.Add(life),
	}, nil
}

// Signed says whether the key of the CA in dir has signed the certificate in the file cert.
func Signed(dir, cert string) bool {
	made, err := ReadCertificates(cert)
	if err != nil {
		return false
	}
	key, err := loadKey(dir)
	if err != nil {
		return false
	}
	by := x509.Certificate{PublicKey: key.Public()}
	return by.CheckSignature(made[0].SignatureAlgorithm, made[0].RawTBSCertificate, made[0].Signature) == nil
}

// loadCA returns the certificates in the CA's file, the first of which is the CA's, and the CA's key.
func loadCA(dir string) ([]*x509.Certificate, crypto.Signer, error) {
	certs, err := ReadCertificates(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, nil, err
	}
	key, err := loadKey(dir)
	if err != nil {
		return nil, nil, err
	}
	if pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !pub.Equal(certs[0].PublicKey) {
		return nil, nil, fmt.Errorf("%s: not the key of the first certificate in %s", filepath.Join(dir, CAKeyFile), CAFile)
	}
	return certs, key, nil
}

func loadKey(dir string) (crypto.Signer, error) {
	path := filepath.Join(dir, CAKeyFile)
	b, err := readPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("read CA key: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", path)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s, ok := k.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key that cannot sign", path)
	}
	return s, nil
}

// ReadCertificates reads all certificates of a PEM file. There must be at least one.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	if err := whole(path, b); err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: a %q where only certificates belong", path, block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no certificate in it", path)
	}
	return out, nil
}

// whole returns an error if a file has PEM blocks that pem.Decode passes over without a word: one that is still being
// written, or that follows a file without a last newline. Whoever is vouched for there would be a stranger.
func whole(path string, text []byte) error {
	read := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		read++
	}
	if begun := bytes.Count(text, []byte("-----BEGIN ")); read < begun {
		return fmt.Errorf("%s: only %d of its %d PEM blocks can be read: it is not written to its end, or a line \"-----BEGIN ...-----\" or \"-----END ...-----\" is broken or shared with something else", path, read, begun)
	}
	return nil
}

// writePair writes a key and its certificate, both or none: on a full disk, what was there of a node stays a pair.
func writePair(keyPath string, key *ecdsa.PrivateKey, certPath string, cert []byte) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	k, err := newPEM(keyPath, "PRIVATE KEY", 0o600, der)
	if err != nil {
		return err
	}
	c, err := newPEM(certPath, "CERTIFICATE", 0o644, cert)
	if err != nil {
		_ = os.Remove(k)
		return err
	}
	if err := place(k, keyPath); err != nil {
		_ = os.Remove(c)
		return err
	}
	return place(c, certPath)
}

// writePEM replaces a file by rename, so that a daemon that reads it sees the old one or the new one.
func writePEM(path, kind string, mode fs.FileMode, ders ...[]byte) error {
	name, err := newPEM(path, kind, mode, ders...)
	if err != nil {
		return err
	}
	return place(name, path)
}

// newPEM writes a file that is to take the place of path, beside it, and returns its name.
func newPEM(path, kind string, mode fs.FileMode, ders ...[]byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	err = f.Chmod(mode)
	for _, der := range ders {
		err = errors.Join(err, pem.Encode(f, &pem.Block{Type: kind, Bytes: der}))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return f.Name(), nil
}

// place gives what newPEM wrote its name.
func place(name, path string) error {
	if err := os.Rename(name, path); err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
