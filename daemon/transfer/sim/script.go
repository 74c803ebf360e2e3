package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Script is a cluster in which nothing happens that no command asks for: everything takes a millisecond, nothing
// fails by itself. Commands are lines of words, some of them key=value. What the machines do comes back as text.
type Script struct {
	c      *Cluster
	out    strings.Builder
	ops    map[string]*Op    // "engine key", "end bind", "end item"
	short  map[string]uint64 // "end get": the item that it had no room for
	things map[string]*thing // by name
	start  transfer.Time
	tick   string // a tick from which nothing followed yet
}

// NewScript returns a script without nodes.
func NewScript() *Script {
	s := &Script{ops: map[string]*Op{}, short: map[string]uint64{}, things: map[string]*thing{}}
	s.c = newCluster(Options{Seed: 1, Trace: s.trace})
	s.c.fixed = true
	s.start = s.c.now
	s.c.cfg.FenceGrace = 10 * ms
	return s
}

// hidden are lines of which every trace is full.
var hidden = []string{"CreditsReturned", "ArmTimer", "LayoutSet", "SessionOpened"}

func (s *Script) trace(line string) {
	for _, h := range hidden {
		if strings.Contains(line, h) {
			return
		}
	}
	at, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if strings.HasSuffix(rest, "Tick{}") {
		s.tick = rest // shown if something follows from it
		return
	}
	t, _ := strconv.ParseFloat(strings.TrimSuffix(at, "ms"), 64)
	since := strconv.FormatFloat(math.Round((t-float64(s.start)/1e6)*1000)/1000, 'f', -1, 64)
	if s.tick != "" && strings.Contains(rest, "->") {
		fmt.Fprintf(&s.out, "%sms %s\n", since, s.tick)
	}
	s.tick = ""
	fmt.Fprintf(&s.out, "%sms %s\n", since, rest)
}

// args are the words of a command.
type args struct {
	words []string
	named map[string]string
}

func parse(fields []string) args {
	a := args{named: map[string]string{}}
	for _, f := range fields {
		if k, v, ok := strings.Cut(f, "="); ok {
			a.named[k] = v
		} else {
			a.words = append(a.words, f)
		}
	}
	return a
}

func (a args) has(word string) bool {
	for _, w := range a.words {
		if w == word {
			return true
		}
	}
	return false
}

func (a args) num(name string, def int) int {
	v, ok := a.named[name]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}

func (a args) ms(name string, def transfer.Time) transfer.Time {
	return transfer.Time(a.num(name, int(def/ms))) * ms
}

// Do runs a command and returns what happened.
func (s *Script) Do(cmd string, fields []string) string {
	s.out.Reset()
	a := parse(fields)
	do := s.commands()[cmd]
	if do == nil {
		do = s.endCommands()[cmd]
	}
	if do == nil {
		return "unknown command " + cmd + "\n"
	}
	do(a)
	if s.c.broken != nil {
		fmt.Fprintf(&s.out, "BROKEN: %v\n", s.c.broken)
	}
	return s.out.String()
}

func (s *Script) commands() map[string]func(args) {
	return map[string]func(args){
		"nodes":    func(a args) { each(a.words, func(n string) { s.c.AddNode(n) }) },
		"engine":   s.engine,
		"config":   s.config,
		"offer":    s.offer,
		"extend":   s.extend,
		"take":     s.take,
		"watch":    func(a args) { s.key(a, &transfer.WatchOp{}) },
		"drop":     func(a args) { s.key(a, &transfer.DropOp{}) },
		"cancel":   func(a args) { s.small(a, func(o *Op) transfer.Op { return &transfer.CancelOp{Target: o.user} }) },
		"withdraw": func(a args) { s.small(a, func(o *Op) transfer.Op { return &transfer.WithdrawOp{Target: o.user} }) },
		"progress": func(a args) { s.find(a.words[0]).workers[a.num("rank", 0)].setProgress(uint64(a.num("value", 0))) },
		"kill":     s.kill,
		"close":    func(a args) { each(s.find(a.words[0]).all(), func(x *Session) { x.close("by itself") }) },
		"cut":      func(a args) { p := ends(a.words[0], a.words[1]); s.c.net.cut[p] = true; s.c.net.sever(p) },
		"heal":     func(a args) { delete(s.c.net.cut, ends(a.words[0], a.words[1])) },
		"deaf":     func(a args) { s.c.net.deaf[[2]string{a.words[0], a.words[1]}] = !a.has("off") },
		"crash":    s.crash,
		"restart":  func(a args) { s.find(a.words[0]).start(); s.c.run(s.c.now) },
		"sched":    s.sched,
		"rank":     s.rank,
		"hello":    func(a args) { s.find(a.words[0]).workers[a.num("rank", 0)].hello() },
		"ended":    func(a args) { s.find(a.words[0]).ended() },
		"drain":    func(a args) { s.c.byName[a.words[0]].step(transfer.Drain{Stop: a.has("stop")}) },
		"remove":   s.remove,
		"sleep":    func(a args) { s.find(a.words[0]).workers[a.num("rank", 0)].sleep() },
		"wake":     func(a args) { s.find(a.words[0]).workers[a.num("rank", 0)].wake() },
		"next":     s.nexts,
		"before":   func(a args) { each(a.words, func(n string) { s.c.byName[n].before = true }) },
		"run":      s.run,
		"state":    s.state,
	}
}

func each[T any](words []T, do func(T)) {
	for _, w := range words {
		do(w)
	}
}

func (s *Script) find(name string) *Engine {
	if e := s.end(name); e != nil {
		return e
	}
	panic("no engine " + name)
}

// engine NAME node=N[,N] [split=tp|pp|ppp] [sched] [block=4] [model=m] [credits=64]
func (s *Script) engine(a args) {
	s.c.credits = a.num("credits", 64)
	sh := shape{sched: a.has("sched"), split: a.named["split"], blockSize: a.num("block", 4), model: "m"}
	if m := a.named["model"]; m != "" {
		sh.model = m
	}
	var nodes []*Node
	for n := range strings.SplitSeq(a.named["node"], ",") {
		nodes = append(nodes, s.c.byName[n])
	}
	s.c.addEngine(nodes[0], a.words[0], sh, nodes[1:]...)
	s.c.run(s.c.now)
}

// config sets times, in ms, and sizes, in bytes, for machines that are made after it.
func (s *Script) config(a args) {
	c := &s.c.cfg
	c.OfferWait, c.DefaultLease = a.ms("offer_wait", c.OfferWait), a.ms("lease", c.DefaultLease)
	c.FenceGrace, c.Settle = a.ms("grace", c.FenceGrace), a.ms("settle", c.Settle)
	c.OrphanLease = a.ms("orphan_lease", c.OrphanLease)
	c.WindowSlices, c.AtOnce = a.num("window", c.WindowSlices), a.num("at_once", c.AtOnce)
	c.MaxItems = a.num("items", c.MaxItems)
	s.c.inline, s.c.slice = uint64(a.num("inline", int(s.c.inline))), uint64(a.num("slice", int(s.c.slice)))
}

func (s *Script) next(a args, name string, n *int) { *n = a.num(name, *n) }

// next [corrupt=N] [lose=N] [fence=MS] [fence_fails=0|1]
func (s *Script) nexts(a args) {
	x := &s.c.next
	s.next(a, "corrupt", &x.corrupt)
	s.next(a, "lose", &x.lose)
	x.fence = a.ms("fence", x.fence)
	x.fenceFails = a.num("fence_fails", 0) == 1
}

func (s *Script) request(a args) *Request {
	key := a.named["key"]
	if q := s.c.requestOf(key); q != nil {
		return q
	}
	q := s.c.newRequest(nil, a.num("consumers", 1), a.num("tokens", 8))
	q.key = key
	return q
}

// offer ENGINE key=K tokens=N [consumers=1] [lease=MS] [ahead=STEPS] [layered] [open]
func (s *Script) offer(a args) {
	q := s.request(a)
	q.prod, q.tokens, q.consumers = s.find(a.words[0]), a.num("tokens", 8), a.num("consumers", 1)
	all := a.num("total", q.tokens)
	cut := q.tokens
	q.tokens = all
	for _, o := range q.offer(offerPlan{cuts: []int{cut}, ahead: a.num("ahead", 0), layered: a.has("layered"), open: a.has("open"), lease: a.ms("lease", 0)}) {
		s.note(a, o)
	}
}

// extend ENGINE key=K to=TOKENS [ahead=STEPS] [layered] [open]
func (s *Script) extend(a args) {
	o := s.ops[a.words[0]+" "+a.named["key"]]
	end := o.segs[len(o.segs)-1][0]
	o.offers(o.sess.blocks(int(end.FirstToken+end.NTokens), a.num("to", 0), o.req.tokens, o.ids, later))
	ext := &transfer.ExtendOp{Target: o.user, Sealed: !a.has("open"), Layered: a.has("layered")}
	ext.Blocks = o.segs[len(o.segs)-1]
	ext.After = o.write(ext.Blocks, a.num("ahead", 0), ext.Layered)
	s.c.newSmall(o.sess, ext)
}

// take ENGINE key=K [peer=NODE] [from=0] [tokens=N] [timeout=MS] [id=N] [ahead=STEPS] [layered] [conflict] [token=T] [content=C]; with
// [rank=N] part=I of=N one rank takes that part alone
func (s *Script) take(a args) {
	q := s.request(a)
	p := takePlan{first: a.num("from", 0), stop: a.num("tokens", q.tokens), peer: a.named["peer"], timeout: a.ms("timeout", second),
		ahead: a.num("ahead", 0), layered: a.has("layered"), attempt: a.num("id", 0), token: q.token}
	if a.has("conflict") {
		p.conflict = byTake
	}
	if t, ok := a.named["token"]; ok {
		p.token = []byte(t)
	}
	if t, ok := a.named["content"]; ok {
		p.content = []byte(t)
	}
	e := s.find(a.words[0])
	if of := a.num("of", 0); of > 0 {
		s.note(a, q.takeBy(e.workers[a.num("rank", 0)], p, a.num("part", 0), of))
		return
	}
	for _, o := range q.take(e, p) {
		s.note(a, o)
	}
}

// note remembers an operation by its engine and key, and also by its rank.
func (s *Script) note(a args, o *Op) {
	name := a.words[0] + " " + a.named["key"]
	if s.ops[name] == nil || s.ops[name].freed {
		s.ops[name] = o
	}
	s.ops[fmt.Sprintf("%s/%d %s", a.words[0], o.sess.rank, a.named["key"])] = o
}

// cancel, withdraw ENGINE[/RANK] key=K
func (s *Script) small(a args, op func(*Op) transfer.Op) {
	o := s.ops[a.words[0]+" "+a.named["key"]]
	k := s.c.newSmall(o.sess, op(o))
	k.timeout = second
}

// watch, drop ENGINE key=K [peer=NODE] [token=T]
func (s *Script) key(a args, op transfer.Op) {
	q := s.request(a)
	token := q.token
	if t, ok := a.named["token"]; ok {
		token = []byte(t)
	}
	kind := "watch"
	switch o := op.(type) {
	case *transfer.WatchOp:
		*o = transfer.WatchOp{Key: []byte(q.key), Token: token, Peer: a.named["peer"], Timeout: a.ms("timeout", second)}
	case *transfer.DropOp:
		*o = transfer.DropOp{Key: []byte(q.key), Token: token, Peer: a.named["peer"], Timeout: a.ms("timeout", second)}
		kind = "drop"
		q.drops++
	}
	k := s.c.newOp(kind, s.find(a.words[0]).askers()[0], nil)
	k.timeout = second
	s.note(a, k)
	k.submit(op)
}

// run MS
func (s *Script) run(a args) {
	n, err := strconv.Atoi(a.words[0])
	if err != nil {
		panic(err)
	}
	s.c.run(s.c.now + transfer.Time(n)*ms)
}

// kill ENGINE [rank=N | sched] ends its processes, or one of them.
func (s *Script) kill(a args) {
	e := s.find(a.words[0])
	switch {
	case a.has("sched"):
		e.sched.kill("killed")
	case a.named["rank"] != "":
		e.workers[a.num("rank", 0)].kill("killed")
	default:
		e.killRest(e.all())
	}
}

// sched ENGINE: its scheduler is back after a restart, or has a successor.
func (s *Script) sched(a args) {
	e := s.find(a.words[0])
	x := e.newSession(transfer.Scheduler, 0)
	x.pool, e.sched.heir, e.sched = e.sched.pool, x, x
	s.c.run(s.c.now)
}

// rank ENGINE [rank=0]: that rank is back after a restart.
func (s *Script) rank(a args) {
	e, i := s.find(a.words[0]), a.num("rank", 0)
	e.workers[i] = e.newSession(transfer.Worker, i)
	s.c.run(s.c.now)
}

// crash NODE [down=5] [await=MS]
func (s *Script) crash(a args) {
	n := s.c.byName[a.words[0]]
	n.await = a.ms("await", 0)
	n.crash(a.ms("down", 5*ms))
}

// remove ENGINE [rank=0] takes the rank's region away.
func (s *Script) remove(a args) {
	w := s.find(a.words[0]).workers[a.num("rank", 0)]
	w.node.step(transfer.RegionRemoved{Session: w.id, Region: region})
}

// state shows what the machines have.
func (s *Script) state(args) {
	for _, n := range s.c.nodes {
		x := n.m.Snapshot()
		fmt.Fprintf(&s.out, "%s: %d offers, %d transfers, %d shared and %d exclusive holds\n", n.name, len(x.Offers), len(x.Transfers), x.HoldsShared, x.HoldsExclusive)
		for _, o := range x.Offers {
			fmt.Fprintf(&s.out, "  offer %s %s tokens=%d consumed=%d/%d lease=%dms\n", o.Key, o.State, o.Tokens, o.Consumed, o.Consumers, o.Lease/ms)
		}
		for _, t := range x.Transfers {
			fmt.Fprintf(&s.out, "  transfer x%d end=%d %s key=%s peer=%s %d/%d bytes\n", uint32(t.Xfer), t.End, t.State, ownKey([]byte(t.Key)), t.Peer, t.Moved, t.Bytes)
		}
		for _, p := range x.Pipes {
			fmt.Fprintf(&s.out, "  %s %q %s home=%s ends=%d items=%d bytes=%d waiting=%d in_doubt=%d delivered=%d\n", p.Kind(), p.Name, p.State, p.Home, p.Ends,
				p.Items, p.Bytes, p.Waiting, p.InDoubt, p.Delivered)
		}
	}
}
