package roster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

var (
	noProof = strings.Repeat("0", 64)
	errKept = errors.New("its place is kept for another")
)

// daemons is one daemon after another, with what each leaves to the next.
type daemons struct {
	t      *testing.T
	roster *Roster
	lives  *Lives[transfer.SessionID]
	last   transfer.SessionID
}

func newDaemons(t *testing.T) *daemons {
	return &daemons{t: t, roster: New(), lives: NewLives[transfer.SessionID]()}
}

func (d *daemons) restart() {
	f := d.roster.File()
	d.roster, d.lives = New(), NewLives[transfer.SessionID]()
	d.roster.Recall(f)
	d.lives.Expect(d.roster)
}

// giveUp: who is not back by now is not awaited any more.
func (d *daemons) giveUp() {
	d.lives.GiveUp(d.roster.Away())
	d.roster.GiveUp()
}

// quiet is a client that submits nothing.
type quiet struct{}

func (quiet) Submitted() bool { return false }

// comes opens a session of engine e; was is the session that it had before, 0: none. The error is why it is refused.
func (d *daemons) comes(instance string, role transfer.Role, rank uint32, was transfer.SessionID) (id transfer.SessionID, k Known, err error) {
	s := Session{Engine: "e", Instance: instance, Role: role, Rank: rank, Secret: noProof}
	if _, _, err := d.lives.Judge(s.engine(), instance, was != 0); err != nil {
		return 0, k, err
	}
	if d.roster.Kept(&s, Return{ID: was}) {
		return 0, k, errKept
	}
	d.last++
	s.ID = d.last
	d.lives.Join(s.engine(), instance, s.ID, was != 0)
	k = d.roster.Put(s, quiet{}, Return{ID: was}, d.lives.Past(s.engine()))
	d.roster.Another(&s, k)
	return s.ID, k, nil
}

// leaves ends a session; again: its connection alone.
func (d *daemons) leaves(instance string, id transfer.SessionID, again bool) {
	e := Engine{Name: "e"}
	d.roster.Leave(id, again)
	d.lives.Leave(e, instance, id, d.roster.Awaits(e, instance))
}

// TestRanksOfWhoIsLateAreKnown: an engine that stood still for longer than it was awaited has the ranks that it had before, whoever of it is
// back first, also when the daemon is restarted once more meanwhile. The next instance begins without.
func TestRanksOfWhoIsLateAreKnown(t *testing.T) {
	for _, more := range []int{0, 1, 2} {
		d := newDaemons(t)
		_, _, _ = d.comes("i", transfer.Worker, 0, 0)
		b, _, _ := d.comes("i", transfer.Worker, 1, 0)
		for range 1 + more {
			d.restart()
			d.giveUp()
		}
		_, k, err := d.comes("i", transfer.Worker, 1, b)
		if err != nil || k.Resumed || !slices.Equal(k.Had, []uint32{0, 1}) {
			t.Errorf("%d more restarts: it comes back as %+v, %v", more, k, err)
		}
		if _, k, err = d.comes("j", transfer.Worker, 0, 0); err != nil || len(k.Had) != 0 {
			t.Errorf("%d more restarts: the next instance comes as %+v, %v", more, k, err)
		}
		d.restart()
		if n := len(d.roster.File().Instances); n != 1 {
			t.Errorf("%d more restarts: %d instances are remembered, want the last one", more, n)
		}
	}
}

// TestWhoIsNotAnsweredIsStillExpected: an instance is replaced by the one that comes after it also when all that came of it lately was a
// client that said HELLO and was gone before it was answered.
func TestWhoIsNotAnsweredIsStillExpected(t *testing.T) {
	d := newDaemons(t)
	a, _, _ := d.comes("i", transfer.Worker, 0, 0)
	d.restart()
	gone, k, err := d.comes("i", transfer.Worker, 0, a)
	if err != nil || !k.Resumed {
		t.Fatalf("it comes back as %+v, %v", k, err)
	}
	d.leaves("i", gone, true)
	b, _, err := d.comes("j", transfer.Worker, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.restart()
	d.giveUp()
	if _, _, err = d.comes("i", transfer.Worker, 0, a); err == nil {
		t.Error("it takes the place of the one that came after it, which is late")
	}
	if _, _, err = d.comes("j", transfer.Worker, 0, b); err != nil {
		t.Errorf("who is late is refused: %v", err)
	}
}

// TestWhoStoodStillIsReplacedWithTheRestOfItsInstance: when some of an instance were given up, and the others have left since, the one that comes
// after it has its place from them all, also when the daemon is restarted meanwhile.
func TestWhoStoodStillIsReplacedWithTheRestOfItsInstance(t *testing.T) {
	for _, again := range []bool{false, true} {
		d := newDaemons(t)
		a, _, _ := d.comes("i", transfer.Worker, 0, 0)
		b, _, _ := d.comes("i", transfer.Worker, 1, 0)
		d.restart()
		b, _, _ = d.comes("i", transfer.Worker, 1, b)
		d.giveUp()
		if again {
			d.restart()
			b, _, _ = d.comes("i", transfer.Worker, 1, b)
			d.giveUp()
		}
		d.leaves("i", b, false)
		c, k, err := d.comes("j", transfer.Worker, 0, 0)
		if err != nil || len(k.Had) != 0 {
			t.Fatalf("%v: the next instance comes as %+v, %v", again, k, err)
		}
		d.restart()
		d.giveUp()
		if _, _, err = d.comes("i", transfer.Worker, 0, a); err == nil {
			t.Errorf("%v: who stood still takes the place of the next instance, which is late", again)
		}
		if _, _, err = d.comes("j", transfer.Worker, 0, c); err != nil {
			t.Errorf("%v: who is late is refused: %v", again, err)
		}
	}
}

// TestWhoWasLateIsKnownByTheNameThatItHas: who comes back later than it is awaited is a new session, and who that is when the daemon is killed
// before it has heard so. What a scheduler brings then may still be from before it was late.
func TestWhoWasLateIsKnownByTheNameThatItHas(t *testing.T) {
	for _, heard := range []bool{false, true} {
		d := newDaemons(t)
		a, _, _ := d.comes("i", transfer.Worker, 0, 0)
		s, _, _ := d.comes("i", transfer.Scheduler, transfer.NoRank, 0)
		d.restart()
		d.giveUp()
		worker, _, _ := d.comes("i", transfer.Worker, 0, a)
		scheduler, k, err := d.comes("i", transfer.Scheduler, transfer.NoRank, s)
		if err != nil || k.Resumed {
			t.Errorf("the scheduler comes late as %+v, %v", k, err)
		}
		if heard {
			a, s = worker, scheduler
		}
		d.restart()
		if _, k, err = d.comes("i", transfer.Worker, 0, a); err != nil || !k.Resumed {
			t.Errorf("it has heard its new name: %v, the worker comes as %+v, %v", heard, k, err)
		}
		if _, k, err = d.comes("i", transfer.Scheduler, transfer.NoRank, s); err != nil || !k.Resumed || !k.Changed {
			t.Errorf("it has heard its new name: %v, the scheduler comes as %+v, %v", heard, k, err)
		}
	}
}

// TestTheRankOfWhoCameLaterIsKept: a process that stood still does not take the place of the one that was started for it, while that one is on
// its way back after a restart. It may have it when that one does not come.
func TestTheRankOfWhoCameLaterIsKept(t *testing.T) {
	d := newDaemons(t)
	a, _, _ := d.comes("i", transfer.Worker, 0, 0)
	d.restart()
	b, _, err := d.comes("i", transfer.Worker, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.restart()
	if _, _, err = d.comes("i", transfer.Worker, 0, a); err != errKept {
		t.Errorf("who stood still comes first: %v", err)
	}
	if _, k, err := d.comes("i", transfer.Worker, 0, b); err != nil || !k.Resumed {
		t.Errorf("who came after it comes back as %+v, %v", k, err)
	}
	d.restart()
	d.giveUp()
	if _, k, err := d.comes("i", transfer.Worker, 0, a); err != nil || k.Resumed {
		t.Errorf("when nobody is awaited it comes back as %+v, %v", k, err)
	}
}

// TestWhoHadNoSessionIsNobodyElse: however many sessions are awaited, a client that names none comes as a new one.
func TestWhoHadNoSessionIsNobodyElse(t *testing.T) {
	d := newDaemons(t)
	_, _, _ = d.comes("i", transfer.Worker, 0, 0)
	d.restart()
	fresh := Session{Engine: "e", Instance: "i", Role: transfer.Worker, Rank: 1}
	if !d.roster.MayResume(Return{}, &fresh) {
		t.Error("it is taken for one that comes back without its secret")
	}
	if c := d.roster.Heir(Return{}); c != nil {
		t.Errorf("its session is continued by %v", c)
	}
}

// TestWithoutTheSecretNothingIsInherited: who names another's session is a new one, which has no layout and is asked for nothing of before.
func TestWithoutTheSecretNothingIsInherited(t *testing.T) {
	r := New()
	sched := Session{ID: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank, Secret: noProof}
	r.Put(sched, quiet{}, Return{}, nil)
	worker := Session{ID: 2, Engine: "e", Instance: "i", Role: transfer.Worker, Secret: noProof}
	r.Put(worker, quiet{}, Return{}, nil)
	r.HasLayout(2)
	stranger := Return{ID: 2}
	stranger.Proof[0] = 1
	if worker.ID = 3; r.MayResume(stranger, &worker) {
		t.Error("it may come back as a session whose secret it does not know")
	}
	worker.Rank = 1
	if k := r.Put(worker, quiet{}, stranger, nil); k.Resumed {
		t.Errorf("it comes back as %+v", k)
	}
	for _, s := range r.File().Sessions {
		if s.ID == 3 && s.Layout {
			t.Errorf("it has the layout of another: %+v", s)
		}
	}
}

// TestASchedulerThatComesBackIsTheOneOfBefore: however often, and unless another worker came meanwhile, which it may not have in mind.
func TestASchedulerThatComesBackIsTheOneOfBefore(t *testing.T) {
	d := newDaemons(t)
	a, _, _ := d.comes("i", transfer.Worker, 0, 0)
	s, _, _ := d.comes("i", transfer.Scheduler, transfer.NoRank, 0)
	var k Known
	for range 3 {
		d.restart()
		a, _, _ = d.comes("i", transfer.Worker, 0, a)
		if s, k, _ = d.comes("i", transfer.Scheduler, transfer.NoRank, s); !k.Resumed || k.Changed {
			t.Errorf("it comes back as %+v", k)
		}
	}
	d.restart()
	_, _, _ = d.comes("i", transfer.Worker, 1, 0)
	if _, k, _ = d.comes("i", transfer.Scheduler, transfer.NoRank, s); !k.Resumed || !k.Changed {
		t.Errorf("another worker came, and it comes back as %+v", k)
	}
}

// TestWhatMemoryHeldIsKnownToBeGone: a scheduler that was away, or had not said all yet, when a rank of it gave memory up has something else in
// mind than what that holds by the time it comes, also where the daemon to which it comes is the next one. One that was there was told, and one
// of another instance has no part in it.
func TestWhatMemoryHeldIsKnownToBeGone(t *testing.T) {
	for name, c := range map[string]struct {
		there    bool // the scheduler is back, but has submitted nothing new
		told     bool // it has
		instance string
		changed  bool
	}{
		"away":                {instance: "i", changed: true},
		"back, but not all":   {there: true, instance: "i", changed: true},
		"back":                {there: true, told: true, instance: "i"},
		"of another instance": {instance: "j"},
	} {
		d := newDaemons(t)
		a, _, _ := d.comes("i", transfer.Worker, 0, 0)
		s, _, _ := d.comes("i", transfer.Scheduler, transfer.NoRank, 0)
		d.restart()
		_, _, _ = d.comes("i", transfer.Worker, 0, a)
		if c.there {
			s, _, _ = d.comes("i", transfer.Scheduler, transfer.NoRank, s)
		}
		if c.told && d.roster.Brought(s) {
			t.Errorf("%s: it was marked before anything was given up", name)
		}
		who := Session{Engine: "e", Instance: c.instance, Role: transfer.Worker}
		if changed := d.roster.GaveUp(&who); changed != c.changed {
			t.Errorf("%s: something changes: %v", name, changed)
		}
		if d.roster.GaveUp(&who) {
			t.Errorf("%s: something changes a second time", name)
		}
		var k Known
		for range 2 { // two daemons that it comes to, and neither of them hears all
			d.restart()
			if s, k, _ = d.comes("i", transfer.Scheduler, transfer.NoRank, s); !k.Resumed || k.Changed != c.changed {
				t.Errorf("%s: it comes back as %+v", name, k)
			}
		}
		if d.roster.Brought(s) != c.changed || d.roster.Brought(s) {
			t.Errorf("%s: it is known, or said twice, that it has brought all", name)
		}
		d.restart()
		if _, k, _ = d.comes("i", transfer.Scheduler, transfer.NoRank, s); k.Changed {
			t.Errorf("%s: it had brought all, and comes back as %+v", name, k)
		}
	}
}

// TestALayoutIsOfTheSessionThatHadIt: whoever comes in its place is awaited with one, and nobody else is.
func TestALayoutIsOfTheSessionThatHadIt(t *testing.T) {
	for _, had := range []bool{false, true} {
		d := newDaemons(t)
		a, _, _ := d.comes("i", transfer.Worker, 0, 0)
		if had && !d.roster.HasLayout(a) {
			t.Error("there is no such session")
		}
		d.restart()
		_, _, _ = d.comes("i", transfer.Worker, 0, 0)
		d.restart()
		if away := d.roster.Awaited(1).Sessions; len(away) != 1 || away[0].Layout != had {
			t.Errorf("it had a layout: %v; awaited are %+v", had, away)
		}
	}
}

// TestAnHeirIsFoundByWhatItsClientHadBefore: by its name and its secret.
func TestAnHeirIsFoundByWhatItsClientHadBefore(t *testing.T) {
	d := newDaemons(t)
	a, _, _ := d.comes("i", transfer.Worker, 0, 0)
	d.restart()
	_, _, _ = d.comes("i", transfer.Worker, 0, a)
	if c := d.roster.Heir(Return{ID: a}); c != (quiet{}) {
		t.Errorf("its session is continued by %v", c)
	}
	stranger := Return{ID: a}
	stranger.Proof[0] = 1
	if c := d.roster.Heir(stranger); c != nil {
		t.Errorf("a stranger is shown %v", c)
	}
}

// busy is a client that has submitted something.
type busy struct{}

func (busy) Submitted() bool { return true }

// TestOnlyWhoAskedForSomethingHadOthersInMind: another worker that comes changes nothing for a scheduler that has submitted nothing.
func TestOnlyWhoAskedForSomethingHadOthersInMind(t *testing.T) {
	for _, c := range []Client{quiet{}, busy{}} {
		r := New()
		r.Put(Session{ID: 1, Engine: "e", Instance: "i", Role: transfer.Scheduler, Rank: transfer.NoRank}, c, Return{}, nil)
		worker := Session{ID: 2, Engine: "e", Instance: "i", Role: transfer.Worker}
		if changed := r.Another(&worker, r.Put(worker, quiet{}, Return{}, nil)); changed != c.Submitted() {
			t.Errorf("it has submitted something: %v, and is changed: %v", c.Submitted(), changed)
		}
	}
}

// TestOnlyTheRankItselfIsKept: that another rank is awaited keeps nobody out.
func TestOnlyTheRankItselfIsKept(t *testing.T) {
	d := newDaemons(t)
	_, _, _ = d.comes("i", transfer.Worker, 0, 0)
	d.restart()
	if _, _, err := d.comes("i", transfer.Worker, 1, 77); err != nil {
		t.Errorf("rank 1, of which nothing is known: %v", err)
	}
	if _, _, err := d.comes("i", transfer.Worker, 0, 78); err != errKept {
		t.Errorf("rank 0, which is awaited: %v", err)
	}
}
