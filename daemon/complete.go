package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Flags are the settings that the command line puts over the file. An empty one was not given.
type Flags struct {
	Node, StateDir, Socket, Listen, Metrics, Admin, CA string
	Peers                                              map[string]string
}

// absolute makes paths independent of the working directory: a path that a shell completes is often relative.
func (f *Flags) absolute() error {
	for _, p := range []*string{&f.StateDir, &f.Socket, &f.Admin, &f.CA} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("path %q: %w", *p, err)
		}
		*p = abs
	}
	return nil
}

// Complete puts the flags over the file, fills in what depends on the host, and checks the result. With dev it prepares
// a private directory and certificates of its own.
func Complete(c config.Config, f Flags, dev bool) (config.Config, error) {
	set := func(dst *string, v string) {
		if v != "" {
			*dst = v
		}
	}
	if err := f.absolute(); err != nil {
		return c, err
	}
	set(&c.Node, f.Node)
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("node: no name given, and the host has none: %w", err)
		}
		c.Node = host
	}
	if dev {
		if err := develop(&c, f); err != nil {
			return c, err
		}
	}
	set(&c.Socket, f.Socket)
	set(&c.Listen, f.Listen)
	set(&c.Metrics, f.Metrics)
	set(&c.Admin, f.Admin)
	if len(f.Peers) > 0 {
		nodes := maps.Clone(f.Peers)
		for name, addr := range c.Peers.Nodes {
			if _, given := nodes[name]; !given {
				nodes[name] = addr
			}
		}
		c.Peers.Nodes = nodes
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("configuration:\n%w", err)
	}
	return c, nil
}

// develop sets what a daemon for one user on one machine needs: sockets in a private directory, peers on loopback, and
// a CA that daemons of this user share.
func develop(c *config.Config, f Flags) error {
	needsCA := !c.Insecure && (c.TLS == (config.TLS{}) || f.CA != "") // a flag takes precedence over the file
	home, ca := f.StateDir, f.CA
	if home == "" || ca == "" && needsCA {
		base, err := devDir()
		if err != nil {
			return err
		}
		home, ca = cmp.Or(home, base), cmp.Or(ca, filepath.Join(base, "ca"))
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	// What a configuration file says beside --dev stays.
	unless := func(dst *string, def, v string) {
		if *dst == def {
			*dst = v
		}
	}
	def := config.Default()
	unless(&c.Socket, def.Socket, filepath.Join(home, "kvpiped.sock"))
	unless(&c.Admin, def.Admin, filepath.Join(home, "admin.sock"))
	unless(&c.Listen, def.Listen, "127.0.0.1:7650")
	if len(c.Peers.Allow) == 0 {
		c.Peers.Allow = []string{"127.0.0.0/8", "::1/128"}
	}
	if !needsCA {
		return nil
	}
	tls, err := devCertificates(ca, c.Node)
	if err == nil {
		c.TLS = tls
	}
	return err
}

// devDir makes config.DevDir. It refuses one that somebody else could have put there.
func devDir() (string, error) {
	dir := config.DevDir()
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", fmt.Errorf("private directory: %w", err)
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700) // whatever umask and parent make of it
	}
	if err != nil && !os.IsExist(err) {
		return "", fmt.Errorf("private directory: %w", err)
	}
	if err := sys.CheckPrivateDir(dir); err != nil {
		return "", fmt.Errorf("private directory: %w: remove it, or give --state-dir and --ca", err)
	}
	return dir, nil
}

// devCA is the name of CAs that development daemons make.
const devCA = "kvpipe development CA"

// devCertificates issues this node's certificate from the CA in dir. The first daemon makes that CA; a daemon that
// finds it about to end makes it anew. Another CA, if its key is there, signs too, and stays as it is. A lock keeps
// daemons that start at once apart.
func devCertificates(dir, node string) (config.TLS, error) {
	var none config.TLS
	if strings.ContainsAny(node, "/ ") {
		return none, fmt.Errorf("node: %q: give a name without spaces and slashes", node)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return none, fmt.Errorf("CA directory: %w", err)
	}
	lock, err := sys.LockFileWait(filepath.Join(dir, ".lock"))
	if err != nil {
		return none, err
	}
	defer func() { _ = lock.Close() }()
	ca := filepath.Join(dir, pki.CAFile)
	if _, err := os.Stat(ca); os.IsNotExist(err) {
		begin := pki.Init
		if _, err := os.Stat(filepath.Join(dir, pki.CAKeyFile)); err == nil { // whoever began was killed, or found no room
			begin = pki.Finish
		}
		if err := begin(dir, devCA, devLife); err != nil {
			return none, err
		}
	}
	cert, key := pki.NodeFiles(dir, node)
	t := config.TLS{CA: ca, Cert: cert, Key: key}
	if id, err := pki.Open(ca, cert, key, node); err == nil {
		// A certificate that another CA signed is renewed by whoever put it there.
		if until, err := id.Problem(); err == nil && (until.After(renewAt()) || !pki.Signed(dir, cert)) {
			return t, nil
		}
	}
	if err := pki.Renew(dir, devCA, renewAt(), devLife); err != nil {
		return none, err
	}
	return t, pki.IssueNode(dir, dir, node, []string{"localhost", "127.0.0.1", "::1"}, devLife)
}
