package session_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// proc is a /proc in which this process lives, and is where a test says.
type proc struct {
	t   *testing.T
	dir string
}

func newProc(t *testing.T) proc {
	p := proc{t, t.TempDir()}
	noErr(t, os.Mkdir(p.own(""), 0o700))
	noErr(t, os.WriteFile(p.own("statm"), []byte("1 1 1 1 1 1 1\n"), 0o600)) // it lives
	return p
}

func (p proc) own(name string) string { return filepath.Join(p.dir, strconv.Itoa(os.Getpid()), name) }

// names says in which cgroup the process is.
func (p proc) names(group string) {
	noErr(p.t, os.WriteFile(p.own("cgroup"), []byte("0::"+group+"\n"), 0o600))
}

// root has a daemon look there.
func (p proc) root(c *session.Config) { c.ProcRoot = p.dir }

// The kernel lets cgroups have any name; who is in one that is no text comes back all the same.
func TestAnOwnerOfAnyNameComesBack(t *testing.T) {
	p := newProc(t)
	for _, group := range []string{"/a", "/a\xff", "/\x1b[1m"} {
		p.names(group)
		l := newLives(t)
		n := l.start(p.root)
		c := n.dial(worker("e", "", 0))
		owner := n.Sessions()[0].Owner
		l.kill(n)
		n = l.start(p.root)
		if got := n.Awaited().Sessions; len(got) != 1 || got[0].Owner != owner {
			t.Errorf("%q: awaited %+v, its owner was %q", group, got, owner)
		}
		p.names(group + "?")
		n.refused(again(worker("e", "", 0), c), transfer.Denied, "not yours to resume")
		p.names(group)
		n.dial(again(worker("e", "", 0), c))
	}
}

// A daemon in a container sees cgroups from its own, which is elsewhere after it was replaced.
func TestAnOwnerSeenFromAnotherContainerComesBack(t *testing.T) {
	p := newProc(t)
	for _, c := range []struct {
		was, now string
		same     bool
	}{
		{"/../pod/c", "/../../burst/pod/c", true},
		{"/../../burst/pod/c", "/../pod/c", true},
		{"/kube/burst/pod/c", "/../pod/c", true}, // the daemon was no container before
		{"/../pod/c", "/../other/c", false},
		{"/../pod/c", "/../d/c/c2", false},
		{"/../pod/c", "/../../xpod/c", false},
		{"/pod/c", "/burst/pod/c", false}, // seen from the same place
		{"/../..", "/../pod/c", false},
	} {
		p.names(c.was)
		l := newLives(t)
		n := l.start(p.root)
		a := n.dial(worker("e", "", 0))
		owner := n.Sessions()[0].Owner
		l.kill(n)
		n = l.start(p.root)
		p.names(c.now)
		if !c.same {
			n.refused(again(worker("e", "", 0), a), transfer.Denied, "not yours to resume")
			continue
		}
		wrong := again(worker("e", "", 0), a)
		wrong.Secret[0]++
		n.refused(wrong, transfer.Denied, "not yours to resume")
		n.dial(again(worker("e", "", 0), a))
		n.dial(worker("e", "", 1)) // which the daemon before did not know
		for _, s := range n.Sessions() {
			if s.Owner != owner {
				t.Errorf("%q seen as %q: rank %d is of %q, was %q", c.was, c.now, s.Rank, s.Owner, owner)
			}
		}
	}
}

// Who came before that is known of its place keeps the name that it has: its other ranks join it, and it comes back.
func TestAnOwnerOfAnotherEngineKeepsItsName(t *testing.T) {
	p := newProc(t)
	l := newLives(t)
	p.names("/../pod/c")
	n := l.start(p.root)
	a := n.dial(worker("e", "", 0))
	l.kill(n)
	p.names("/../../burst/pod/c")
	n = l.start(p.root)
	other, early := n.dial(worker("other", "", 0)), n.dial(worker("e", "", 1))
	n.dial(again(worker("e", "", 0), a)) // from now on it is known
	n.dial(worker("other", "", 1))
	owners := map[string]bool{}
	for _, s := range n.Sessions() {
		if s.Engine == "other" {
			owners[s.Owner] = true
		}
	}
	if len(owners) != 1 {
		t.Errorf("ranks of one engine are of %v", owners)
	}
	n.dial(again(worker("other", "", 0), other))
	n.dial(again(worker("e", "", 1), early))
}

// A client that /proc hides, as one with hidepid does, has not ended: it hears what to do, and its library asks again.
func TestAHiddenClientHearsWhatToDo(t *testing.T) {
	proc := t.TempDir()
	n := start(t, func(c *session.Config) { c.ProcRoot = proc })
	n.refused(worker("e", "", 0), transfer.Unavailable, "hidepid")
	own := filepath.Join(proc, strconv.Itoa(os.Getpid()))
	noErr(t, os.Mkdir(own, 0o700))
	noErr(t, os.WriteFile(filepath.Join(own, "cgroup"), []byte("0::/a\n"), 0o600))
	n.dial(worker("e", "", 0))
}
