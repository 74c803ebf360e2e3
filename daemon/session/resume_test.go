package session_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// lives are the daemons, one after the other, of one state file.
type lives struct {
	t     *testing.T
	state string
	epoch uint32
	log   lines
}

// lines is a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newLives(t *testing.T) *lives {
	return &lives{t: t, state: filepath.Join(t.TempDir(), "state"), epoch: 100}
}

func (l *lives) start(change func(*session.Config)) *node {
	l.epoch++
	return start(l.t, func(c *session.Config) {
		c.State, c.Epoch, c.Log = l.state, l.epoch, slog.New(slog.NewTextHandler(&l.log, nil))
		c.Await = patience // however long a busy machine takes until all are back
		if change != nil {
			change(c)
		}
	})
}

// kill ends a daemon as if it had been killed: nothing that it does about it is remembered.
func (l *lives) kill(n *node) {
	l.t.Helper()
	before, err := os.ReadFile(l.state)
	noErr(l.t, err)
	noErr(l.t, n.Close())
	noErr(l.t, os.WriteFile(l.state, before, 0o600))
}

// forgets waits until the file says of no session with that name any more.
func (l *lives) forgets(name string) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		text, err := os.ReadFile(l.state)
		noErr(l.t, err)
		sessions, _, _ := strings.Cut(string(text), `"instances":`)
		if !strings.Contains(sessions, name) {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("the file still has %s", text)
		}
	}
}

func worker(engine, instance string, rank uint32) sessiontest.Options {
	return sessiontest.Options{Engine: engine, Instance: instance, TPRank: rank, TPWorld: 2}
}

func again(o sessiontest.Options, c *sessiontest.Client) sessiontest.Options {
	o.Instance = zeroTerminated(c.Welcome.Instance[:])
	o.Session, o.Secret = c.Welcome.Session, c.Welcome.Secret
	return o
}

func TestSessionsAreRememberedByTheNextDaemon(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	a, b := n.dial(worker("e", "", 0)), n.dial(worker("e", "", 1))
	n.dial(worker("gone", "", 0)).Kill()
	l.forgets("gone")
	l.kill(n)

	n = l.start(nil)
	awaited := n.Awaited()
	if len(awaited.Sessions) != 2 || awaited.Sessions[0].Rank != 0 || awaited.Sessions[1].Engine != "e" || awaited.For <= 0 {
		t.Fatalf("awaited: %+v", awaited)
	}
	// Only who has the secret may come in its place.
	wrong := again(worker("e", "", 0), a)
	wrong.Secret[31] ^= 1
	n.refused(wrong, transfer.Denied, "not yours to resume")
	other := again(worker("e", "", 0), a)
	other.Engine = "f"
	n.refused(other, transfer.Denied, "not yours to resume")
	swapped := again(worker("e", "", 1), a)
	n.refused(swapped, transfer.Denied, "not yours to resume")
	back := n.dial(again(worker("e", "", 0), a))
	if back.Welcome.Session == a.Welcome.Session || back.Welcome.Instance != a.Welcome.Instance || back.Welcome.Epoch != 102 {
		t.Errorf("welcome: %+v, before %+v", back.Welcome, a.Welcome)
	}
	// Killed once more, before everybody was back.
	l.kill(n)
	n = l.start(nil)
	if got := n.Awaited().Sessions; len(got) != 2 {
		t.Errorf("awaited: %+v", got)
	}
	n.dial(again(worker("e", "", 1), b))
	n.dial(again(worker("e", "", 0), back))
}

// A rank that had a layout is awaited with it, also when the daemon went in which it had not set it again yet.
func TestALayoutIsAwaitedAlsoAfterTwoRestarts(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	c := n.dial(worker("e", "", 0))
	region, _, err := c.Alloc(1 << 20)
	noErr(t, err)
	noErr(t, c.SetLayout([]layout.View{view(region)}, []layout.Field{{Key: "model", Value: "m"}}, 0))
	for _, as := range []sessiontest.Options{again(worker("e", "", 0), c), worker("e", zeroTerminated(c.Welcome.Instance[:]), 0)} {
		l.kill(n)
		n = l.start(nil)
		if got := n.Awaited().Sessions; len(got) != 1 || !got[0].Layout {
			t.Errorf("awaited: %+v", got)
		}
		n.dial(as) // and no further
	}
	l.kill(n)
	n = l.start(nil)
	n.dial(worker("e", "other", 0)) // another one: it may have none
	l.kill(n)
	if got := l.start(nil).Awaited().Sessions; len(got) != 1 || got[0].Layout {
		t.Errorf("awaited: %+v", got)
	}
}

// A session that names no instance joins those that are awaited; one that names a new one takes their place for good.
func TestAnAwaitedInstanceIsTheLiveOne(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	b := n.dial(worker("e", "one", 1))
	l.kill(n)
	n = l.start(nil)
	if name := zeroTerminated(n.dial(worker("e", "", 0)).Welcome.Instance[:]); name != "one" {
		t.Errorf("joined %q", name)
	}
	n.dial(worker("e", "two", 0))
	n.refused(again(worker("e", "", 1), b), transfer.Closed, `was replaced by "two"`)
	l.kill(n)
	n = l.start(nil)
	fresh := n.dial(worker("e", "", 0)) // its process was started anew
	if name := zeroTerminated(fresh.Welcome.Instance[:]); name != "two" {
		t.Errorf("instance is %q", name)
	}
}

func TestADaemonThatStopsTellsTheNextOne(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	c := n.dial(worker("e", "", 0))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	noErr(t, n.EndAll(ctx, transfer.Cause{Reason: transfer.Unavailable, Text: "the daemon is stopping"}))
	noErr(t, n.Close())
	n = l.start(nil)
	n.dial(again(worker("e", "", 0), c))
}

func TestWhoDoesNotComeBackIsForgotten(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	c := n.dial(worker("e", "one", 0))
	l.kill(n)
	n = l.start(func(c *session.Config) { c.Await = time.Nanosecond })
	l.forgets("one")
	n.dial(again(worker("e", "", 0), c)) // as a new one
}

func TestABrokenStateFileIsSetAside(t *testing.T) {
	made := func(more string) string {
		return fmt.Sprintf(`{"version":1,"sessions":[{"session":1,"engine":"e","instance":"i","owner":"u","role":1,"secret_sha256":"%064x"%s}]}`, 1, more)
	}
	for _, text := range []string{
		"", "{", `{"version":0}`, `{"version":1,"sessions":[{"session":1}]}`, `[]`,
		// Nobody can come back as these.
		made(`,"session":0`), made(`,"role":0`), made(`,"rank":65536`), made(`,"role":2`), made(`,"engine":"a\u0000b"`), made(`,"engine":""`),
		made(`,"instance":"` + strings.Repeat("i", 129) + `"`), made(`,"secret_sha256":"` + strings.Repeat("z", 64) + `"`),
	} {
		l := newLives(t)
		noErr(t, os.WriteFile(l.state, []byte(text), 0o600))
		n := l.start(nil)
		if got := n.Awaited().Sessions; len(got) != 0 {
			t.Errorf("%q: awaited %+v", text, got)
		}
		n.dial(worker("e", "", 0))
		if aside, err := os.ReadFile(l.state + ".broken"); err != nil || string(aside) != text {
			t.Errorf("%q: set aside: %q, %v", text, aside, err)
		}
		if !strings.Contains(l.log.String(), "broken state file") {
			t.Errorf("%q: log: %s", text, l.log.String())
		}
	}
}

func TestAStateFileThatIsNoFileIsSetAside(t *testing.T) {
	l := newLives(t)
	noErr(t, os.Symlink("/dev/zero", l.state)) // reading it would never end
	n := l.start(nil)
	n.dial(worker("e", "", 0))
	if !strings.Contains(l.log.String(), "no regular file") {
		t.Errorf("log: %s", l.log.String())
	}
}

// Ends of pipes are never remembered, and a role that this daemon does not know does not come to it.
func TestRolesThatDoNotComeBackAreNotAwaited(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	n.dial(worker("e", "", 0))
	l.kill(n)
	text, err := os.ReadFile(l.state)
	noErr(t, err)
	for _, role := range []string{`"role":3`, `"role":4`} {
		noErr(t, os.WriteFile(l.state, bytes.Replace(text, []byte(`"role":1`), []byte(role), 1), 0o600))
		n = l.start(nil)
		if got := n.Awaited().Sessions; len(got) != 0 {
			t.Errorf("%s: awaited: %+v", role, got)
		}
		noErr(t, n.Close())
	}
	if strings.Contains(l.log.String(), "broken state file") {
		t.Errorf("log: %s", l.log.String())
	}
}

// A file of a later version has more in it, and what is known of it is used.
func TestALaterStateFileIsRead(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	c := n.dial(worker("e", "", 0))
	l.kill(n)
	text, err := os.ReadFile(l.state)
	noErr(t, err)
	later := strings.Replace(strings.Replace(string(text), `"version":1`, `"version":2,"more":[1]`, 1), `"engine"`, `"colour":"red","engine"`, 1)
	noErr(t, os.WriteFile(l.state, []byte(later), 0o600))
	n = l.start(nil)
	wrong := again(worker("e", "", 0), c)
	wrong.Secret[0] ^= 1
	n.refused(wrong, transfer.Denied, "not yours")
	n.dial(again(worker("e", "", 0), c))
}

// A daemon comes back one version older or newer, and so may the library: they speak the newest that both know.
func TestASessionComesBackToANeighbouringVersion(t *testing.T) {
	speaks := func(oldest, newest uint32) func(*session.Config) {
		return func(c *session.Config) { c.ABI = [2]uint32{oldest, newest} }
	}
	for _, c := range []struct{ oldest, newest, libMin, libMax, want uint32 }{
		{1, 1, 1, 1, 1}, {0, 1, 1, 1, 1}, {1, 2, 1, 1, 1}, {1, 2, 1, 2, 2}, {1, 1, 1, 2, 1}, {2, 2, 1, 2, 2}, {1, 1, 0, 1, 1},
	} {
		l := newLives(t)
		n := l.start(nil)
		first := n.dial(worker("e", "", 0))
		if first.Welcome.ABI != ring.ABI {
			t.Fatalf("abi is %d", first.Welcome.ABI)
		}
		l.kill(n)
		n = l.start(speaks(c.oldest, c.newest))
		o := again(worker("e", "", 0), first)
		o.Hello = func(h *ring.Hello) { h.ABIMin, h.ABIMax = c.libMin, c.libMax }
		if got := n.dial(o).Welcome.ABI; got != c.want {
			t.Errorf("%+v: abi is %d", c, got)
		}
	}
	l := newLives(t)
	n := l.start(nil)
	first := n.dial(worker("e", "", 0))
	l.kill(n)
	n = l.start(speaks(2, 3))
	n.refused(again(worker("e", "", 0), first), transfer.Incompatible, "1 to 1", "2 to 3")
}

// said is what the machine was told when the client's session was opened.
func (n *node) said(c *sessiontest.Client) transfer.SessionOpened {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ev := range n.events {
		if o, ok := ev.(transfer.SessionOpened); ok && uint64(o.Session) == c.Welcome.Session {
			return o
		}
	}
	n.t.Fatalf("nothing was said of session %#x", c.Welcome.Session)
	panic("unreachable")
}

// The ranks that an instance had are remembered as long as it has sessions, those that have left, too.
func TestRanksThatLeftAreRemembered(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	scheduler := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
	s, a, b := n.dial(scheduler), n.dial(worker("e", "i", 0)), n.dial(worker("e", "i", 1))
	b.Kill()
	for deadline := time.Now().Add(patience); strings.Contains(readFile(t, l.state), `"rank":1,`); {
		if time.Now().After(deadline) {
			t.Fatalf("the file still has %s", readFile(t, l.state))
		}
	}
	for range 2 {
		l.kill(n)
		n = l.start(nil)
		s = n.dial(again(scheduler, s))
		if got := n.said(s).Had; !slices.Equal(got, []uint32{0, 1}) {
			t.Errorf("ranks of before: %d", got)
		}
		a = n.dial(again(worker("e", "i", 0), a))
	}
	l.kill(n)
	// Of a version before this one the file names sessions alone.
	text := readFile(t, l.state)
	i := strings.Index(text, `,"instances":`)
	noErr(t, os.WriteFile(l.state, []byte(text[:i]+"}"), 0o600))
	n = l.start(nil)
	s = n.dial(again(scheduler, s))
	if got := n.said(s).Had; !slices.Equal(got, []uint32{0}) {
		t.Errorf("ranks of before: %d", got)
	}
	l.kill(n)
	n = l.start(func(c *session.Config) { c.Await = time.Nanosecond })
	l.forgets(`"e"`)
	if got := n.said(n.dial(again(scheduler, s))).Had; !slices.Equal(got, []uint32{0}) {
		t.Errorf("an instance that comes back late had ranks %d", got)
	}
	scheduler.Instance = "j"
	if got := n.said(n.dial(scheduler)).Had; len(got) != 0 {
		t.Errorf("the next instance had ranks %d", got)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	noErr(t, err)
	return string(text)
}

// A rank is another when its session is not one of before. Schedulers that had asked for something are remembered with that, whoever of them
// and of the ranks is back first; those that had not, or came later, have nothing that could be about the rank before.
func TestReplacedRanksAreRemembered(t *testing.T) {
	scheduler := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
	l := newLives(t)
	n := l.start(nil)
	says := func(what string, c *sessiontest.Client, resumed, changed bool) {
		t.Helper()
		if o := n.said(c); o.Resumed != resumed || o.Changed != changed {
			t.Errorf("%s: resumed %v, changed %v, want %v, %v", what, o.Resumed, o.Changed, resumed, changed)
		}
	}
	asks := func(c *sessiontest.Client) {
		t.Helper()
		_, err := c.Submit(&transfer.WatchOp{Key: []byte("k"), Token: make([]byte, 16)})
		noErr(t, err)
		wait[transfer.Submit](n, nil)
	}
	asked, idle := n.dial(scheduler), n.dial(scheduler)
	a := n.dial(worker("e", "i", 0))
	asks(asked)
	restart := func() {
		t.Helper()
		l.kill(n)
		n = l.start(nil)
	}
	restart()
	a = n.dial(again(worker("e", "i", 0), a))
	asked = n.dial(again(scheduler, asked))
	says("a scheduler that asked for nothing yet", n.dial(again(scheduler, idle)), true, false)
	says("a rank that is back", a, true, false)
	says("its scheduler", asked, true, false)

	restart()
	a = n.dial(worker("e", "i", 0))
	says("a rank that is another", a, false, false)
	asked = n.dial(again(scheduler, asked))
	says("a scheduler that was away meanwhile", asked, true, true)
	later := n.dial(scheduler)
	says("one that came after it", later, false, false)
	asks(later)

	restart()
	later, asked = n.dial(again(scheduler, later)), n.dial(again(scheduler, asked))
	a = n.dial(again(worker("e", "i", 0), a))
	says("the other rank, again", a, true, false)
	says("a scheduler that was away when it came", asked, true, true)
	says("one that came after it", later, true, false)

	n.dial(worker("e", "i", 1)) // not in what was asked for
	restart()
	says("the scheduler of one rank of two", n.dial(again(scheduler, later)), true, true)
	wrong := again(scheduler, asked)
	wrong.Session += 1000 // nobody's
	says("who is not known", n.dial(wrong), false, false)
}

// TestMemoryThatWasGivenUpIsRemembered: what a scheduler that is away has in mind is not what a rank's memory holds once that was given up, and
// the daemon to which it comes may be yet another one.
func TestMemoryThatWasGivenUpIsRemembered(t *testing.T) {
	for _, named := range []bool{true, false} { // the rank's layout names the region
		l := newLives(t)
		n := l.start(nil)
		o := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
		scheduler, rank := n.dial(o), n.dial(worker("e", "i", 0))
		l.kill(n)
		n = l.start(nil)
		rank = n.dial(again(worker("e", "i", 0), rank))
		region, _, err := rank.Alloc(16384)
		noErr(t, err)
		other, _, err := rank.Alloc(16384)
		noErr(t, err)
		noErr(t, rank.SetLayout([]layout.View{view(region)}, nil, 0))
		if !named {
			region = other
		}
		noErr(t, rank.Invalidate(region, 0))
		l.kill(n)
		n = l.start(nil)
		says := func(when string, changed bool) {
			t.Helper()
			scheduler = n.dial(again(o, scheduler))
			if got := n.said(scheduler); !got.Resumed || got.Changed != changed {
				t.Errorf("the layout names the region: %v; %s the scheduler is resumed %v, changed %v", named, when, got.Resumed, got.Changed)
			}
		}
		says("at the next daemon", named)
		brings := func(all bool) {
			t.Helper()
			if all {
				n.Brought(transfer.Brought{Session: transfer.SessionID(scheduler.Welcome.Session)})
			}
			n.dial(worker(fmt.Sprint("other", l.epoch), "i", 0)) // the file is written
			l.kill(n)
			n = l.start(nil)
		}
		brings(false)
		says("while it may bring more along,", named)
		brings(true)
		says("once it has brought all,", false)
	}
}

// TestMemoryThatIsGivenUpWhileASchedulerBringsAlong: a scheduler that is back may bring more, whether it has begun or not. All that it wants done
// later is about the memory as it is.
func TestMemoryThatIsGivenUpWhileASchedulerBringsAlong(t *testing.T) {
	for _, begun := range []bool{false, true} {
		l := newLives(t)
		n := l.start(nil)
		o := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
		scheduler, rank := n.dial(o), n.dial(worker("e", "i", 0))
		l.kill(n)
		n = l.start(nil)
		brings := func(all bool) {
			t.Helper()
			_, err := scheduler.Submit(&transfer.OfferOp{Key: []byte("k"), Token: make([]byte, 16), Again: !all})
			noErr(t, err)
			wait[transfer.Submit](n, nil)
			if all {
				n.Brought(transfer.Brought{Session: transfer.SessionID(scheduler.Welcome.Session)})
			}
		}
		comes := func(when string, changed bool) {
			t.Helper()
			l.kill(n)
			n = l.start(nil)
			scheduler = n.dial(again(o, scheduler))
			if got := n.said(scheduler); !got.Resumed || got.Changed != changed {
				t.Errorf("it had begun: %v; %s the scheduler is resumed %v, changed %v", begun, when, got.Resumed, got.Changed)
			}
		}
		givesUp := func() {
			t.Helper()
			rank = n.dial(again(worker("e", "i", 0), rank))
			region, _, err := rank.Alloc(16384)
			noErr(t, err)
			noErr(t, rank.SetLayout([]layout.View{view(region)}, nil, 0))
			noErr(t, rank.Invalidate(region, 0))
		}
		scheduler = n.dial(again(o, scheduler))
		if begun {
			brings(false)
		}
		givesUp()
		comes("while it may bring more along,", true)

		givesUp()
		brings(true)
		n.dial(worker(fmt.Sprint("other", l.epoch), "i", 0)) // the file is written
		comes("once it has brought all,", false)

		brings(true)
		givesUp()
		comes("if it had brought all before,", false)
	}
}

// Who said HELLO and lost its connection before it was answered is who it was when it comes again.
func TestWhoIsNotAnsweredComesAgain(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	a := n.dial(worker("e", "i", 0))
	l.kill(n)
	n = l.start(nil)
	first := n.dial(again(worker("e", "i", 0), a))
	if !n.said(first).Resumed {
		t.Error("it was not known")
	}
	first.Kill()
	wait[transfer.SessionClosed](n, nil)
	if back := n.dial(again(worker("e", "i", 0), a)); !n.said(back).Resumed {
		t.Error("it was not known the second time")
	}
}

// So is a scheduler, though nobody notices in time that it has gone: no rank is its own, so its older session is in nobody's way.
func TestASchedulerThatIsNotAnsweredComesAgain(t *testing.T) {
	scheduler := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
	l := newLives(t)
	n := l.start(nil)
	s := n.dial(scheduler)
	l.kill(n)
	n = l.start(nil)
	for i := range 50 {
		c := n.dial(again(scheduler, s))
		if !n.said(c).Resumed {
			t.Fatalf("it was not known when it came for time %d", i+1)
		}
		c.Kill()
	}
}

// An instance that stood still over restarts does not take the place of the one that came meanwhile, whoever of them is back first.
func TestAnOlderInstanceThatComesBackIsRefused(t *testing.T) {
	old := func(c *sessiontest.Client) sessiontest.Options { return again(worker("e", "", 0), c) }
	soon := func(c *session.Config) { c.Await = time.Nanosecond }

	l := newLives(t)
	n := l.start(nil)
	a, a1 := n.dial(worker("e", "one", 0)), n.dial(worker("e", "one", 1))
	l.kill(n)
	n = l.start(soon)
	l.forgets("one")
	b := n.dial(worker("e", "two", 0))
	n.refused(old(a), transfer.Closed, `was replaced by "two"`)
	for range 2 {
		l.kill(n)
		n = l.start(nil)
		n.refused(old(a), transfer.Closed, `was replaced by "two"`) // also before the newer one is back
		b = n.dial(old(b))
		n.refused(old(a1), transfer.Closed, `was replaced by "two"`)
	}
	l.kill(n)
	n = l.start(soon)
	l.forgets("two")
	n.refused(old(a), transfer.Closed, "was replaced")
	b = n.dial(old(b)) // late, and nobody has its place
	n.dial(worker("e", "three", 0))
	n.refused(old(b), transfer.Closed, `was replaced by "three"`)
}

// A worker that stood still over a restart does not take the place of the one that was started for it, while that one is on its way back.
func TestWhoStoodStillLeavesItsRankToWhoIsAwaited(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	a := n.dial(worker("e", "i", 0))
	l.kill(n)
	n = l.start(nil)
	b := n.dial(worker("e", "i", 0))
	l.kill(n)
	n = l.start(nil)
	n.refused(again(worker("e", "", 0), a), transfer.Busy, "rank 0", "is kept for the session that came after this one")
	if b = n.dial(again(worker("e", "", 0), b)); !n.said(b).Resumed {
		t.Error("who is awaited is not known")
	}
}

// The daemon may be killed before it has heard that the sessions of the older instance have ended.
func TestOnlyTheNewestInstanceIsAwaited(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	a := n.dial(worker("e", "one", 0))
	b := n.dial(worker("e", "two", 0)) // this driver ends nobody
	l.kill(n)
	n = l.start(nil)
	if got := n.Awaited().Sessions; len(got) != 1 || got[0].Instance != "two" {
		t.Errorf("awaited: %+v", got)
	}
	n.refused(again(worker("e", "", 0), a), transfer.Closed, `was replaced by "two"`)
	n.dial(again(worker("e", "", 0), b))
}

// The machine hears of sessions in the order in which they got their places, however many come at once: which instance is the newest, and
// whether a worker came since a scheduler was asked for what it knows, are matters of that order.
func TestTheMachineHearsOfSessionsInTheirOrder(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	for i := range 4 {
		var dials sync.WaitGroup
		for j := range 32 { // fewer than may be silent: those would make room for others
			dials.Go(func() {
				c, err := sessiontest.Dial(n.path, sessiontest.Options{Engine: fmt.Sprint("e", i, j)})
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(c.Kill)
			})
		}
		dials.Wait()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var last transfer.SessionID
	for _, ev := range n.events {
		if o, ok := ev.(transfer.SessionOpened); ok {
			if o.Session < last {
				t.Errorf("session %#x was opened after %#x", uint64(o.Session), uint64(last))
			}
			last = o.Session
		}
	}
}

// Whoever comes again as another rank, for ever, is remembered once.
func TestWhoComesAgainAsAnotherIsRememberedOnce(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	scheduler := n.dial(sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}) // with whom the instance stays
	c := n.dial(worker("e", "i", 0))
	for i := range uint32(6) {
		c = n.dial(again(worker("e", "i", (i+1)%2), c))
	}
	noErr(t, scheduler.Ping())
	if text := readFile(t, l.state); strings.Count(text, `"secret_sha256"`) != 2 {
		t.Errorf("two sessions are remembered as %s", text)
	}
}

// A client has its new name once it has brought all that it has. Daemons that are killed before that, one after the other, find it by the old
// one, and it is no other rank.
func TestWhoHasNotHeardItsNewNameComesBackByTheOldOne(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	scheduler := sessiontest.Options{Engine: "e", Instance: "i", Role: transfer.Scheduler}
	a, s := n.dial(worker("e", "i", 0)), n.dial(scheduler)
	for range 3 {
		l.kill(n)
		n = l.start(nil)
		wrong := again(worker("e", "i", 0), a)
		wrong.Secret[0] ^= 1
		n.refused(wrong, transfer.Denied, "not yours to resume")
		if o := n.said(n.dial(again(worker("e", "i", 0), a))); !o.Resumed {
			t.Errorf("rank 0: %+v", o)
		}
		if o := n.said(n.dial(again(scheduler, s))); !o.Resumed || o.Changed {
			t.Errorf("its scheduler: %+v", o)
		}
	}
}

// TestAPlaceThatNobodyTakesIsNotAwaited: a client that comes back for its session, but asks for what is refused, ends that session. The daemon
// awaits it no longer.
func TestAPlaceThatNobodyTakesIsNotAwaited(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	n.dial(worker("e", "i", 1))
	for _, r := range []struct {
		change func(*sessiontest.Options)
		reason transfer.Reason
		says   string
	}{
		{func(o *sessiontest.Options) { o.SQ = 1000 }, transfer.Invalid, "sq_entries is 1000"},
		{func(o *sessiontest.Options) { o.SQ = 1 << 17 }, transfer.Invalid, "sq_entries is 131072"},
		{func(o *sessiontest.Options) { o.TPWorld = 3 }, transfer.Incompatible, "tp_world and pp_world are 3 and 1"},
	} {
		o := worker("e", "i", 0)
		c := n.dial(o)
		o = again(o, c)
		r.change(&o)
		_, err := sessiontest.Dial(n.path, o)
		says(t, err, r.reason, r.says)
		l.forgets(fmt.Sprintf(`"session":%d,`, c.Welcome.Session))
	}
}

// TestAPlaceIsNotAnothersToGiveUp: who is refused ends no session by naming it, not even one that is opened meanwhile: names can be guessed.
func TestAPlaceIsNotAnothersToGiveUp(t *testing.T) {
	l := newLives(t)
	n := l.start(nil)
	o := worker("e", "i", 0)
	c := n.dial(o)
	rings := n.Usage().Rings
	o = again(o, c)
	o.Session, o.Secret = c.Welcome.Session+1, [32]byte{1}
	refused := make(chan error, 1)
	go func() {
		_, err := sessiontest.Dial(n.path, o)
		refused <- err
	}()
	eventually(t, func() bool { return n.Usage().Rings > rings }, "rings take %d bytes", func() uint64 { return n.Usage().Rings })
	honest := n.dial(worker("honest", "i", 0)) // while the other waits whether its rank becomes free
	if honest.Welcome.Session != o.Session {
		t.Fatalf("the session is %#x, not %#x: this test shows nothing", honest.Welcome.Session, o.Session)
	}
	says(t, <-refused, transfer.Busy, "has a session already")
	l.kill(n)
	n = l.start(nil)
	if back := n.said(n.dial(again(worker("honest", "i", 0), honest))); !back.Resumed {
		t.Errorf("the session that was named comes back as %+v", back)
	}
}
