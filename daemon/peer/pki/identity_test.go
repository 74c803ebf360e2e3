package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestOpenSaysWhatIsWrongWithTheFiles(t *testing.T) {
	dir, other := newCA(t), newCA(t)
	ca := filepath.Join(dir, CAFile)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	cert2, key2 := issue(t, dir, dir, "b", time.Hour)
	old, oldKey := issue(t, dir, t.TempDir(), "a", -time.Minute)
	strange, strangeKey := issue(t, other, other, "a", time.Hour)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ca, cert, key, "a"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, ca, cert, key string
		parts               []string
	}{
		{"missing CA", empty + "x", cert, key, []string{"tls.ca: ", empty + "x", "no such file"}},
		{"missing certificate", ca, empty + "x", key, []string{"tls.cert: ", empty + "x", "no such file"}},
		{"missing key", ca, cert, empty + "x", []string{"tls.key: ", empty + "x", "no such file"}},
		{"missing all", empty + "x", empty + "y", empty + "z", []string{"tls.ca: stat " + empty + "x", "tls.cert: stat " + empty + "y", "tls.key: stat " + empty + "z"}},
		{"a directory", dir, cert, key, []string{"tls.ca: ", dir, "is no file"}},
		{"a FIFO", ca, cert, fifo, []string{"tls.key: ", fifo, "is no file"}},
		{"empty CA", empty, cert, key, []string{empty, "no certificate in it"}},
		{"empty certificate", ca, empty, key, []string{empty, key}},
		{"empty key", ca, cert, empty, []string{cert, empty}},
		{"another key", ca, cert, key2, []string{cert, key2, "does not match", `copy both here as one "kvpipectl certs node a" has made them`}},
		{"another node", ca, cert2, key2, []string{cert2, `node "b"`, `this node is "a"`, "kvpipectl certs node a"}},
		{"expired", ca, old, oldKey, []string{old, "expired on"}},
		{"another CA", ca, strange, strangeKey, []string{strange, ca, "unknown authority"}},
		{"its own certificate for the CA's", cert, cert, key, []string{cert + " holds the certificate of this node alone", "kvpipectl certs init"}},
		{"the CA itself", ca, ca, filepath.Join(dir, CAKeyFile), []string{ca, "no DNS name"}},
	} {
		_, err := Open(c.ca, c.cert, c.key, "a")
		says(t, c.what, err, c.parts...)
	}
	_, err := Open(empty+"x", empty+"y", empty+"z", "a")
	if n := strings.Count(fmt.Sprint(err), "kvpipectl certs"); n != 1 {
		t.Errorf("the remedy is there %d times, want once:\n%v", n, err)
	}
}

// TestFilesInAFolderOfOthers: that the user may not look there is another thing than that they are missing. The thread is another user for a while,
// because nothing is out of reach of root.
func TestFilesInAFolderOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("takes root, to be another user")
	}
	dir := newCA(t)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
	if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); failed != 0 {
		t.Fatal(failed)
	}
	_, err := Open(filepath.Join(dir, CAFile), cert, key, "a")
	if _, _, failed := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0)); failed != 0 {
		t.Fatal(failed)
	}
	says(t, "a folder of root alone", err, "tls.ca: ", "tls.key: ", "permission denied: user 65534, who runs this, may not look into a folder above", "/etc/kvpipe")
	if text := fmt.Sprint(err); strings.Contains(text, "kvpipectl certs") || strings.Count(text, "/etc/kvpipe") != 1 {
		t.Errorf("%s", text)
	}
}

// TestACertificateThatEndsInUse is no more shown, and named; so is that of a CA, which its node's error does not take for the node's.
func TestACertificateThatEndsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newCA(t) // for an hour
		cert, key := issue(t, dir, dir, "a", time.Minute)
		id, err := Open(filepath.Join(dir, CAFile), cert, key, "a")
		if err != nil || id.Valid() != nil {
			t.Fatal(err, id.Valid())
		}
		time.Sleep(2 * time.Minute)
		says(t, "in use", id.Valid(), cert, "expired on 2000-01-01 00:01:00", "kvpipectl certs node a")
		_, err = id.Problem()
		says(t, "for people", err, cert, "expired on 2000-01-01 00:01:00")
		if err := id.Ready(); err != nil {
			t.Errorf("who dials cannot be told any more: %v", err)
		}
		outlive(t, dir, "a", 10*time.Hour)
		if err := id.Valid(); err != nil {
			t.Errorf("renewed: %v", err)
		}
		if until, err := id.Problem(); err != nil || !until.Equal(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)) || !strings.HasPrefix(id.Outlived(), "CN=test CA") {
			t.Errorf("until %s, %v, with %q: its CA ends first", until, err, id.Outlived())
		}
		time.Sleep(2 * time.Hour)
		says(t, "an old CA, in use", id.Valid(), cert, `its CA's certificate "CN=test CA`, "expired on 2000-01-01 01:00:00", "another CA")
		says(t, "an old CA that signs", IssueNode(dir, dir, "b", nil, time.Hour), CAFile, "expired on 2000-01-01 01:00:00", "another CA")
		_, err = Open(filepath.Join(dir, CAFile), cert, key, "a")
		says(t, "an old CA", err, `its CA's certificate "CN=test CA`, "expired on 2000-01-01 01:00:00")
	})
}

// outlive issues a certificate as other tools do, which lasts longer than its CA's.
func outlive(t *testing.T, dir, node string, life time.Duration) {
	t.Helper()
	cas, caKey, err := loadCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := template(node, life)
	if err != nil {
		t.Fatal(err)
	}
	c.DNSNames = []string{node}
	der, err := x509.CreateCertificate(rand.Reader, c, cas[0], key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	certPath, keyPath := NodeFiles(dir, node)
	if err := writePair(keyPath, key, certPath, der); err != nil {
		t.Fatal(err)
	}
}

// TestACertificateLastsAsLongAsTheBestOfItsCAs, of which several may have signed for each other's key.
func TestACertificateLastsAsLongAsTheBestOfItsCAs(t *testing.T) {
	dir := newCA(t) // for an hour
	issue(t, dir, dir, "a", 10*time.Hour)
	id := open(t, dir, "a")
	soon, _ := id.Problem()
	if left := time.Until(soon); left > time.Hour || id.Outlived() == "" {
		t.Errorf("issued for %s by a CA that has an hour left, ends with %q", left, id.Outlived())
	}
	if err := Renew(dir, "test CA", time.Now(), 100*time.Hour); err != nil {
		t.Fatal(err)
	}
	if again, _ := id.Problem(); !again.Equal(soon) {
		t.Error("made anew before it was time")
	}
	old, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err == nil {
		err = Renew(dir, "test CA", time.Now().Add(2*time.Hour), 100*time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	if until, err := id.Problem(); err != nil || !until.Equal(soon) || id.Outlived() != "" {
		t.Errorf("what the CA signed before it was made anew: until %s, %v, ends with %q", until, err, id.Outlived())
	}
	outlive(t, dir, "a", 10*time.Hour)
	renewed, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, CAFile), append(old, renewed...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if until, err := id.Problem(); err != nil || time.Until(until) < 9*time.Hour {
		t.Errorf("beside a CA that ends sooner: until %s, %v", until, err)
	}
}

func TestACertificateOfTomorrowPointsToTheClock(t *testing.T) {
	dir := newCA(t)
	cert, _ := issue(t, dir, dir, "a", time.Hour)
	all, err := ReadCertificates(cert)
	if err != nil {
		t.Fatal(err)
	}
	all[0].NotBefore = time.Now().Add(time.Minute)
	_, err = verify(all[0], nil, nil)
	var untrusted *UntrustedError
	if says(t, "tomorrow's", err, "valid from", "clock"); !errors.As(err, &untrusted) {
		t.Errorf("%T", err)
	}
}

// shake makes a handshake between two identities and returns what each says of it.
func shake(t *testing.T, server, client *Identity) (peer string, err error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	served := make(chan error, 1)
	s := tls.Server(a, server.Config("x"))
	go func() {
		err := s.HandshakeContext(ctx)
		if err == nil {
			_, err = s.Write([]byte("hi"))
		}
		served <- err
		_ = a.Close()
	}()
	c := tls.Client(b, client.Config("x"))
	err = c.HandshakeContext(ctx)
	if err == nil {
		_, err = c.Read(make([]byte, 2)) // the server's word on the client's certificate
	}
	_ = b.Close()
	if err = errors.Join(err, <-served); err != nil {
		return "", err
	}
	return PeerNode(c.ConnectionState())
}

func open(t *testing.T, dir, node string) *Identity {
	t.Helper()
	cert, key := NodeFiles(dir, node)
	id, err := Open(filepath.Join(dir, CAFile), cert, key, node)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestPeersKnowEachOtherByNodeName(t *testing.T) {
	dir, other := newCA(t), newCA(t)
	issue(t, dir, dir, "a", time.Hour)
	issue(t, dir, dir, "b", time.Hour)
	issue(t, other, other, "b", time.Hour)
	a, b, stranger := open(t, dir, "a"), open(t, dir, "b"), open(t, other, "b")
	if name, err := shake(t, a, b); name != "a" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	for _, pair := range [][2]*Identity{{a, stranger}, {stranger, a}} {
		_, err := shake(t, pair[0], pair[1])
		var untrusted *UntrustedError
		if says(t, "a stranger", err, "unknown authority"); !errors.As(err, &untrusted) {
			t.Errorf("%v", err)
		}
	}
	if _, err := PeerNode(tls.ConnectionState{}); err == nil {
		t.Error("nobody has a name")
	}
}

// serial is of the certificate that a handshake would show now.
func serial(id *Identity) string { return id.current().pair.Leaf.SerialNumber.String() }

func TestNewFilesServeTheNextHandshake(t *testing.T) {
	dir := newCA(t)
	issue(t, dir, dir, "a", time.Hour)
	issue(t, dir, dir, "b", time.Hour)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	before := serial(a)
	cfg := a.Config("x")
	issue(t, dir, dir, "a", 30*time.Minute)
	if serial(a) == before {
		t.Error("the old certificate still serves")
	}
	if cfg.Certificates[0].Leaf.SerialNumber.String() != before {
		t.Error("a handshake under way changed its certificate")
	}
	if until, err := a.Problem(); err != nil || time.Until(until) > 30*time.Minute {
		t.Errorf("until %s, %v", until, err)
	}
	// A new CA, first beside the old one, then with certificates of its own.
	next := newCA(t)
	bundle(t, filepath.Join(dir, CAFile), dir, next)
	if _, err := shake(t, a, b); err != nil {
		t.Fatal(err)
	}
	issue(t, next, dir, "b", time.Hour)
	if name, err := shake(t, b, a); name != "b" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
}

// bundle replaces path by the CA certificates of dirs.
func bundle(t *testing.T, path string, dirs ...string) {
	t.Helper()
	var all []byte
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, CAFile))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if err := os.WriteFile(path, all, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenFilesKeepTheLastGoodOnes(t *testing.T) {
	dir, other := newCA(t), newCA(t)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	issue(t, dir, dir, "b", time.Hour)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	before := serial(a)
	strange, strangeKey := issue(t, other, other, "a", time.Hour)
	wrong, wrongKey := issue(t, dir, t.TempDir(), "c", time.Hour)
	old, oldKey := issue(t, dir, t.TempDir(), "a", -time.Minute)
	for _, c := range []struct {
		what      string
		cert, key string // copied over; "" removes
		parts     []string
	}{
		{"certificate without its key", strange, "keep", []string{"does not match"}},
		{"of another CA", strange, strangeKey, []string{"unknown authority"}},
		{"of another node", wrong, wrongKey, []string{`node "c"`}},
		{"expired", old, oldKey, []string{"expired"}},
		{"removed", "", "keep", []string{"no such file"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			replace(t, cert, c.cert)
			replace(t, key, c.key)
			if serial(a) != before {
				t.Error("the broken files serve")
			}
			if name, err := shake(t, a, b); name != "a" || err != nil {
				t.Errorf("%q, %v", name, err)
			}
			_, err := a.Problem()
			says(t, "problem", err, c.parts...)
		})
	}
	issue(t, dir, dir, "a", time.Hour)
	if _, err := a.Problem(); err != nil || serial(a) == before {
		t.Errorf("good files again: %v", err)
	}
}

func replace(t *testing.T, path, by string) {
	t.Helper()
	switch by {
	case "keep":
		return
	case "":
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(by)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Handshakes and new files at the same time: each handshake has a certificate with its own key.
func TestRotationUnderLoad(t *testing.T) {
	dir := newCA(t)
	issue(t, dir, dir, "a", time.Hour)
	issue(t, dir, dir, "b", time.Hour)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 20 && err == nil; i++ {
			err = IssueNode(dir, dir, []string{"a", "b"}[i%2], nil, time.Hour)
		}
		done <- err
	}()
	for n := 0; ; n++ {
		if _, err := shake(t, a, b); err != nil {
			t.Fatal(fmt.Errorf("handshake %d: %w", n, err))
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// TestWhatWasShownIsJudgedByTheCAsOfNow, and by the time at which it was shown.
func TestWhatWasShownIsJudgedByTheCAsOfNow(t *testing.T) {
	dir, next := newCA(t), newCA(t)
	issue(t, dir, dir, "a", time.Hour)
	id := open(t, dir, "a")
	shown, then := []*x509.Certificate{id.current().pair.Leaf}, time.Now()
	before := id.Roots()
	if id.Roots() != before {
		t.Error("other CAs, and no file has changed")
	}
	bundle(t, filepath.Join(dir, CAFile), dir, next)
	if id.Roots() == before {
		t.Error("the CAs of before serve")
	}
	if err := StillSigned(shown, id.Roots(), then); err != nil {
		t.Errorf("beside another CA: %v", err)
	}
	issue(t, dir, dir, "short", time.Nanosecond)
	cert, _ := NodeFiles(dir, "short")
	short, err := ReadCertificates(cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := StillSigned(short, id.Roots(), short[0].NotAfter); err != nil {
		t.Errorf("expired since: %v", err)
	}
	bundle(t, filepath.Join(dir, CAFile), next)
	issue(t, next, dir, "a", time.Hour)
	says(t, "its CA is out", StillSigned(shown, id.Roots(), then), "unknown authority")
	says(t, "nothing was shown", StillSigned(nil, id.Roots(), then), "no certificate")
}

// TestAFileInThePlaceOfAnotherIsRead, also if it is as long and as old.
func TestAFileInThePlaceOfAnotherIsRead(t *testing.T) {
	dir := newCA(t)
	issue(t, dir, dir, "a", time.Hour)
	id := open(t, dir, "a")
	before, ca, other := id.Roots(), filepath.Join(dir, CAFile), filepath.Join(dir, "other")
	st, err := os.Stat(ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, nil, st.Mode()); err != nil {
		t.Fatal(err)
	}
	replace(t, other, ca)
	if err := errors.Join(os.Chmod(other, st.Mode()), os.Chtimes(other, st.ModTime(), st.ModTime()), os.Rename(other, ca)); err != nil {
		t.Fatal(err)
	}
	if id.Roots() == before {
		t.Error("the CAs of before serve")
	}
}

// TestRenewKeepsTheOtherCAs of the file: their nodes would be strangers.
func TestRenewKeepsTheOtherCAs(t *testing.T) {
	dir, other := newCA(t), newCA(t)
	issue(t, other, other, "b", time.Hour)
	bundle(t, filepath.Join(dir, CAFile), dir, other)
	if err := Renew(dir, "test CA", time.Now().Add(2*time.Hour), 10*time.Hour); err != nil {
		t.Fatal(err)
	}
	issue(t, dir, dir, "a", time.Hour)
	a := open(t, dir, "a")
	if until, _ := a.Problem(); a.Outlived() != "" || time.Until(until) < 50*time.Minute {
		t.Errorf("not renewed: until %s, ends with %q", until, a.Outlived())
	}
	if err := StillSigned([]*x509.Certificate{open(t, other, "b").current().pair.Leaf}, a.Roots(), time.Now()); err != nil {
		t.Error(err)
	}
}

// TestAChainThatIsBroken: what a node shows beside its certificate has to be certificates.
func TestAChainThatIsBroken(t *testing.T) {
	dir := newCA(t)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	b, err := os.ReadFile(cert)
	if err == nil {
		err = os.WriteFile(cert, append(b, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(filepath.Join(dir, CAFile), cert, key, "a")
	says(t, "chain", err, cert, "x509: malformed certificate")
}

// TestWhatHasExpiredIsJudgedByARenewedCA as by the one before: the CA's certificate is renewed most of all when it has
// ended, and the nodes' have ended with it. A time at which the shown one and the new CA were both valid never was.
func TestWhatHasExpiredIsJudgedByARenewedCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newCA(t) // for an hour
		issue(t, dir, dir, "a", 10*time.Hour)
		shown, opened := []*x509.Certificate{open(t, dir, "a").current().pair.Leaf}, time.Now()
		time.Sleep(2 * time.Hour)
		if err := Renew(dir, "test CA", time.Now(), 10*time.Hour); err != nil {
			t.Fatal(err)
		}
		issue(t, dir, dir, "b", time.Hour)
		roots := open(t, dir, "b").Roots()
		if err := StillSigned(shown, roots, opened); err != nil {
			t.Errorf("expired since, as its CA: %v", err)
		}
		says(t, "it had expired before", StillSigned(shown, roots, time.Now()), "expired")
		other := newCA(t)
		issue(t, other, other, "b", time.Hour)
		says(t, "another CA", StillSigned(shown, open(t, other, "b").Roots(), opened), "unknown authority")
		if !shown[0].NotAfter.Before(time.Now()) {
			t.Error("what was shown has changed")
		}
	})
}
