package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newCA makes a CA in a directory of its own.
func newCA(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := Init(dir, "test CA", time.Hour); err != nil {
		t.Fatal(err)
	}
	return dir
}

func issue(t *testing.T, dir, out, node string, life time.Duration, hosts ...string) (cert, key string) {
	t.Helper()
	if err := IssueNode(dir, out, node, hosts, life); err != nil {
		t.Fatal(err)
	}
	return NodeFiles(out, node)
}

func says(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v does not say %q", what, err, p)
		}
	}
}

func TestKeysAreForTheirOwnerAlone(t *testing.T) {
	dir := newCA(t)
	cert, key := issue(t, dir, filepath.Join(dir, "out"), "a", time.Hour)
	for path, want := range map[string]fs.FileMode{
		filepath.Join(dir, CAKeyFile): 0o600, key: 0o600, filepath.Join(dir, CAFile): 0o644, cert: 0o644,
	} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	for _, d := range []string{dir, filepath.Join(dir, "out")} {
		left, err := filepath.Glob(filepath.Join(d, ".new-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
}

func TestInitKeepsTheCAThatThereIs(t *testing.T) {
	dir := newCA(t)
	before, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		t.Fatal(err)
	}
	err = Init(dir, "another", time.Hour)
	says(t, "a second CA", err, CAFile, "remove it first")
	if after, _ := os.ReadFile(filepath.Join(dir, CAFile)); !errors.Is(err, fs.ErrExist) || !slices.Equal(before, after) {
		t.Errorf("replaced, or %v", err)
	}
	// Half a CA is one too.
	if err := os.Remove(filepath.Join(dir, CAFile)); err != nil {
		t.Fatal(err)
	}
	says(t, "a CA key alone", Init(dir, "another", time.Hour), CAKeyFile, "remove it first")
}

// TestInitThatFailsLeavesNothing: with another name it makes the CA at once, and does not take a key that it left for a CA that nodes rely on.
func TestInitThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	says(t, "a name that no certificate has", Init(dir, "\xff", time.Hour), "UTF-8")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := Init(dir, "test CA", time.Hour); err != nil {
		t.Error(err)
	}
}

// TestADiskThatIsFull: of a pair, as of a CA, both files are made or none, and what was there stays. Files have room for a key, and for no
// certificate. That holds for all files of a process, so it is one of its own.
func TestADiskThatIsFull(t *testing.T) {
	if os.Getenv("PKI_TEST_FULL") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestADiskThatIsFull$", "-test.v")
		cmd.Env = append(os.Environ(), "PKI_TEST_FULL=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestADiskThatIsFull")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	dir := newCA(t)
	cert, key := issue(t, dir, dir, "a", time.Hour)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 400, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	node, ca := IssueNode(dir, dir, "a", nil, time.Hour), t.TempDir()
	init := Init(ca, "test CA", time.Hour)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	says(t, "a node", node, cert, "file too large")
	says(t, "a CA", init, CAFile, "file too large")
	if _, err := Open(filepath.Join(dir, CAFile), cert, key, "a"); err != nil {
		t.Errorf("what the node had: %v", err)
	}
	if left, err := os.ReadDir(ca); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestACertificateNamesNodeAndHosts(t *testing.T) {
	dir := newCA(t)
	cert, _ := issue(t, dir, dir, "node-1", time.Hour, "10.1.2.3", "fd00::7", "node-1", "kv.example.org")
	all, err := ReadCertificates(cert)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	c := all[0]
	if name, err := NodeName(c); name != "node-1" || err != nil {
		t.Errorf("%q %v", name, err)
	}
	ip := func(want string) bool {
		return slices.ContainsFunc(c.IPAddresses, func(got net.IP) bool { return got.Equal(net.ParseIP(want)) })
	}
	if !slices.Equal(c.DNSNames, []string{"node-1", "kv.example.org"}) || !ip("10.1.2.3") || !ip("fd00::7") {
		t.Errorf("%v %v", c.DNSNames, c.IPAddresses)
	}
	if !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) || c.IsCA {
		t.Errorf("%v, CA %v", c.ExtKeyUsage, c.IsCA)
	}
}

func TestIssueNodeRefusesWhatCannotWork(t *testing.T) {
	dir := newCA(t)
	for _, name := range []string{"", "a b", "../a", "a/b", `a\b`, ".hidden", "a:1", "ä", strings.Repeat("n", 256)} {
		says(t, "name "+name, IssueNode(dir, dir, name, nil, time.Hour), "node name", "1 to 255")
	}
	says(t, "no CA", IssueNode(t.TempDir(), dir, "a", nil, time.Hour), CAFile, "no such file")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(CAKeyFile, "nothing")
	says(t, "no key", IssueNode(dir, dir, "a", nil, time.Hour), CAKeyFile, "no PEM block")
	write(CAKeyFile, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
	says(t, "broken key", IssueNode(dir, dir, "a", nil, time.Hour), CAKeyFile)
	if err := os.Remove(filepath.Join(dir, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	says(t, "key missing", IssueNode(dir, dir, "a", nil, time.Hour), "read CA key", CAKeyFile)
	write(CAFile, "nothing")
	says(t, "no certificate", IssueNode(dir, dir, "a", nil, time.Hour), CAFile, "no certificate in it")
}

// TestALongNameHasFiles, or is said to be too long for them.
func TestALongNameHasFiles(t *testing.T) {
	dir := newCA(t)
	name := strings.Repeat("n", 251)
	issue(t, dir, dir, name, time.Hour)
	open(t, dir, name)
	says(t, "longer", IssueNode(dir, dir, strings.Repeat("n", 252), nil, time.Hour), "of 252 bytes: give one of at most 251, for the names of its files")
}

// TestANodeDoesNotReplaceTheCA: a node of that name would take the place of the only key that signs for the cluster.
func TestANodeDoesNotReplaceTheCA(t *testing.T) {
	dir := newCA(t)
	for _, out := range []string{dir, filepath.Join(dir, "out")} {
		says(t, out, IssueNode(dir, out, "ca", nil, time.Hour), `node name "ca"`, "give the node another name")
	}
	issue(t, dir, dir, "a", time.Hour) // by the same CA
}

func TestReadCertificatesReadsABundle(t *testing.T) {
	one, two := newCA(t), newCA(t)
	bundle := filepath.Join(t.TempDir(), "ca.crt")
	var text []byte
	for _, dir := range []string{one, two} {
		b, err := os.ReadFile(filepath.Join(dir, CAFile))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	if err := os.WriteFile(bundle, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if all, err := ReadCertificates(bundle); err != nil || len(all) != 2 {
		t.Errorf("%d, %v", len(all), err)
	}
	// Nodes of either CA are good while the bundle has both.
	for _, dir := range []string{one, two} {
		cert, key := issue(t, dir, dir, "a", time.Hour)
		if _, err := Open(bundle, cert, key, "a"); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(bundle, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := ReadCertificates(bundle)
	says(t, "broken", err, bundle)
}

// TestEveryBlockOfAFileIsRead: a certificate that is passed over without a word makes strangers of the nodes that it vouches for.
func TestEveryBlockOfAFileIsRead(t *testing.T) {
	one, two := newCA(t), newCA(t)
	cert, key := issue(t, one, one, "a", time.Hour)
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first, second := read(filepath.Join(one, CAFile)), read(filepath.Join(two, CAFile))
	for _, c := range []struct {
		what, text string
		parts      []string
	}{
		{"no newline between two", strings.TrimSpace(first) + second, []string{"only 0 of its 2 PEM blocks can be read"}},
		{"no newline before the last", first + strings.TrimSpace(second) + second, []string{"only 1 of its 3 PEM blocks"}},
		{"still being copied", first + second[:len(second)/2], []string{"only 1 of its 2 PEM blocks", "not written to its end"}},
		{"behind something else", first + "# the new one:" + second, []string{"only 1 of its 2 PEM blocks"}},
		{"a key beside them", first + read(key), []string{`a "PRIVATE KEY" where only certificates belong`}},
	} {
		path := filepath.Join(t.TempDir(), "pem")
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := ReadCertificates(path)
		says(t, c.what, err, append(c.parts, path)...)
		_, err = Open(path, cert, key, "a")
		says(t, c.what, err, append(c.parts, path)...)
	}
	// So it is with the chain that a node shows.
	if err := os.WriteFile(cert, []byte(read(cert)+"# its CA:"+first), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(one, CAFile), cert, key, "a")
	says(t, "chain", err, cert, "only 1 of its 2 PEM blocks")
}

// TestCAsOfOneNameDiffer, or "issued by" would name the CA that is here when another one is meant.
func TestCAsOfOneNameDiffer(t *testing.T) {
	var names []string
	for range 2 {
		dir := filepath.Join(t.TempDir(), "ca")
		if err := Init(dir, "kvpipe CA", time.Hour); err != nil {
			t.Fatal(err)
		}
		certs, err := ReadCertificates(filepath.Join(dir, CAFile))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, certs[0].Subject.CommonName)
	}
	form := regexp.MustCompile(`^kvpipe CA [0-9a-f]{8}$`)
	if names[0] == names[1] || !form.MatchString(names[0]) {
		t.Errorf("two CAs are called %q", names)
	}
}
