package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/layout"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// engine is a worker's session with memory and a layout of blocks of 4 KiB, 16 tokens each.
type engine struct {
	*sessiontest.Client
	t   *testing.T
	mem []byte
}

const blockBytes = 4096

// join connects an engine of one rank with n blocks.
func (n *node) join(name string, blocks int) *engine {
	n.t.Helper()
	c, err := sessiontest.Dial(n.cfg.Socket, sessiontest.Options{Engine: name, TPWorld: 1, PPWorld: 1})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(c.Kill)
	region, mem, err := c.Alloc(blocks * blockBytes)
	if err != nil {
		n.t.Fatal(err)
	}
	err = c.SetLayout([]layout.View{{
		Region: region, NumBlocks: uint64(blocks), BlockStride: blockBytes, TokenStride: blockBytes / 16, HeadStride: blockBytes / 16, ContentBytes: blockBytes / 16,
		Kind: layout.Paged, BlockSize: 16, Heads: 1, TotalHeads: 1, Part: "kv",
	}}, []layout.Field{{Key: "model", Value: "m"}}, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	return &engine{Client: c, t: n.t, mem: mem}
}

// all names every block of the engine.
func (e *engine) all() []layout.BlockList {
	ids := make([]uint32, len(e.mem)/blockBytes)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return []layout.BlockList{{NTokens: 16 * uint32(len(ids)), IDs: ids}}
}

// do submits an operation and returns how it ends.
func (e *engine) do(op transfer.Op) *sessiontest.Completion {
	e.t.Helper()
	user, err := e.Submit(op)
	if err != nil {
		e.t.Fatal(err)
	}
	c, _, err := e.WaitFor(user)
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

func token() []byte {
	b := make([]byte, 24)
	_, _ = rand.Read(b)
	return b
}

// handOver moves all blocks of from to to, under key.
func handOver(from, to *engine, peer, key, trace string, token []byte) {
	from.t.Helper()
	for i := range from.mem {
		from.mem[i] = byte(i*7 + i>>12)
	}
	if _, err := from.Submit(&transfer.OfferOp{Key: []byte(key), Token: token, Trace: trace, Consumers: 1, Sealed: true, Lease: 60e9, Blocks: from.all()}); err != nil {
		from.t.Fatal(err)
	}
	c := to.do(&transfer.TakeOp{Key: []byte(key), Token: token, Trace: trace, Peer: peer, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9, Blocks: to.all()})
	if c.Status != uint16(transfer.Done) {
		from.t.Fatalf("take: status %d, %+v", c.Status, c.Cause())
	}
	if !bytes.Equal(from.mem, to.mem) {
		from.t.Fatal("the bytes differ")
	}
	end, err := from.Wait()
	if err != nil || end.Status != uint16(transfer.Done) {
		from.t.Fatalf("offer: %+v, %v", end, err)
	}
}

// TestLogs follows a hand-over through the logs of both nodes by its trace id. Tokens are in none of them, in no form.
func TestLogs(t *testing.T) {
	a, b := pair(t, nil)
	secret, wrong, early := token(), token(), token()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	producer, consumer := a.join("prefill", 64), b.join("decode", 64)
	handOver(producer, consumer, "a", "cmpl-17", trace, secret)
	// What goes wrong is logged and told too.
	if _, err := producer.Submit(&transfer.OfferOp{Key: []byte("k"), Token: secret, Consumers: 1, Sealed: true, Lease: 60e9, Blocks: producer.all()}); err != nil {
		t.Fatal(err)
	}
	c := consumer.do(&transfer.TakeOp{Key: []byte("k"), Token: wrong, Peer: "a", TakeID: 2, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9, Blocks: consumer.all()})
	if c.Reason != uint16(transfer.Denied) {
		t.Errorf("wrong token: %+v", c.Cause())
	}
	consumer.do(&transfer.WatchOp{Key: []byte("k"), Token: secret, Peer: "a", Timeout: 20e9})
	consumer.do(&transfer.DropOp{Key: []byte("later"), Token: early, Peer: "a", Timeout: 20e9})
	said := c.Text
	a.stop()
	b.stop()

	for _, n := range []*node{a, b} {
		followed := 0
		for l := range strings.Lines(n.log.String()) {
			if strings.Contains(l, trace) {
				followed++
				if !strings.Contains(l, "level=DEBUG") {
					t.Errorf("node %s logs a request above debug level: %s", n.cfg.Node, l)
				}
			}
		}
		if followed < 1 {
			t.Errorf("node %s: no line has the trace id", n.cfg.Node)
		}
		said += n.log.String()
	}
	for _, want := range []string{"session=", "engine=prefill", "engine=decode", "peer=a", "peer=b", "transfer=", "key="} {
		if !strings.Contains(said, want) {
			t.Errorf("no line has %s", want)
		}
	}
	for _, tok := range [][]byte{secret, wrong, early} {
		for form, s := range map[string]string{
			"raw": string(tok), "quoted": strings.Trim(fmt.Sprintf("%q", tok), `"`), "hex": hex.EncodeToString(tok), "HEX": strings.ToUpper(hex.EncodeToString(tok)),
			"base64": base64.RawStdEncoding.EncodeToString(tok), "base64url": base64.RawURLEncoding.EncodeToString(tok), "decimal": strings.Trim(fmt.Sprint(tok), "[]"),
		} {
			if strings.Contains(said, s) {
				t.Errorf("a token is in a log or an error text, %s", form)
			}
		}
	}
}

// TestInfoIsQuiet: at info level a request leaves no line.
func TestInfoIsQuiet(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	quiet := n.cfg
	quiet.Log.Level = "info"
	n.Reload(loaded(quiet))
	producer, consumer := n.join("prefill", 4), n.join("decode", 4)
	before := n.log.String()
	handOver(producer, consumer, "", "cmpl-1", "trace-1", token())
	for l := range strings.Lines(strings.TrimPrefix(n.log.String(), before)) {
		if !strings.Contains(l, "the daemon stood still") { // which a machine that is busy with something else may have had it do
			t.Errorf("a hand-over logs: %s", l)
		}
	}
}

func (n *node) page() string {
	n.t.Helper()
	r, err := http.Get("http://" + n.web.Addr().String() + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// TestMetricsCount: what clients do is on the page.
func TestMetricsCount(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	producer, consumer := n.join("prefill", 8), n.join("decode", 8)
	handOver(producer, consumer, "", "k", "", token())
	c := consumer.do(&transfer.TakeOp{Key: []byte(transfer.ReservedPrefix + "x"), Token: token(), TakeID: 9, Parts: 1, LayerSlot: transfer.NoSlot, Blocks: consumer.all()})
	if c.Reason != uint16(transfer.Invalid) || !strings.Contains(c.Text, "for the daemons") {
		t.Errorf("a reserved key: %+v", c.Cause())
	}
	c = consumer.do(&transfer.TakeOp{Key: []byte("none"), Token: token(), TakeID: 10, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 1e6, Blocks: consumer.all()})
	if c.Reason != uint16(transfer.Timeout) && c.Reason != uint16(transfer.NotFound) {
		t.Errorf("a take without an offer: %+v", c.Cause())
	}
	if err := consumer.Close(); err != nil {
		t.Fatal(err)
	}
	producer.Kill()
	var page string
	eventually(t, "the killed session has ended, and its memory is back", func() bool {
		page = n.page()
		return strings.Contains(page, "\nkvpipe_sessions 0\n") && strings.Contains(page, "\nkvpipe_pinned_bytes 0\n")
	})
	for _, want := range []string{
		"kvpipe_take_seconds_count 1\n", `kvpipe_operations_total{operation="take",reason="ok",status="done"} 1`, `kvpipe_operations_total{operation="offer",reason="ok",status="done"} 1`,
		fmt.Sprintf("kvpipe_moved_bytes_total %d\n", 8*blockBytes), `kvpipe_sessions_ended_total{reason="closed"} 1`, `kvpipe_sessions_ended_total{reason="peer_gone"} 1`, "kvpipe_pinned_bytes 0\n", `kvpipe_held_blocks{hold="exclusive"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// TestDrain: new operations are refused, /health says so, and the admin interface waits for what is in flight. A take that waits for its offer
// ends: none comes any more.
func TestDrain(t *testing.T) {
	n := start(t, "a", t.TempDir(), nil)
	producer, consumer, early := n.join("prefill", 1), n.join("decode", 1), n.join("early", 1)
	health := func() string {
		r, err := http.Get("http://" + n.web.Addr().String() + "/health")
		if err != nil {
			t.Fatal(err)
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return fmt.Sprint(r.StatusCode, " ", strings.TrimSpace(string(b)))
	}
	if got := health(); got != "200 ok" {
		t.Errorf("health: %q", got)
	}
	secret := token()
	if _, err := producer.Submit(&transfer.OfferOp{Key: []byte("k"), Token: secret, Consumers: 1, Lease: 60e9, Blocks: producer.all()}); err != nil {
		t.Fatal(err)
	}
	take := func(e *engine, key string) uint64 {
		user, err := e.Submit(&transfer.TakeOp{Key: []byte(key), Token: secret, TakeID: 1, Parts: 1, LayerSlot: transfer.NoSlot, Timeout: 20e9, Blocks: e.all()})
		if err != nil {
			t.Fatal(err)
		}
		return user
	}
	running, waiting := take(consumer, "k"), take(early, "not offered yet")
	states := func() (all []string) {
		for _, x := range get[[]admin.Transfer](n, "transfers") {
			all = append(all, x.State)
		}
		return all
	}
	eventually(t, "one take runs until its offer is sealed, the other waits", func() bool {
		all := states()
		return slices.Contains(all, "parked") && slices.Contains(all, "moving")
	})
	drained := make(chan error, 1)
	go func() {
		body, err := n.ctl.Post(t.Context(), "drain", url.Values{}, struct{}{})
		if err == nil {
			err = body.Close()
		}
		drained <- err
	}()
	eventually(t, "the daemon drains", func() bool { return health() == "503 draining" })
	if c := consumer.do(&transfer.TakeOp{Key: []byte("k2"), Token: token(), TakeID: 2, Parts: 1, LayerSlot: transfer.NoSlot, Blocks: consumer.all()}); c.Reason != uint16(transfer.Unavailable) {
		t.Errorf("a take while draining: %+v", c.Cause())
	}
	if c, _, err := early.WaitFor(waiting); err != nil || c.Reason != uint16(transfer.Unavailable) {
		t.Errorf("a take that waited for its offer: %+v, %v", c, err)
	}
	select {
	case err := <-drained:
		t.Fatalf("drained (%v) while a take is in flight", err)
	default:
	}
	who := fmt.Sprintf(" node=a uid=%d pid=%d", os.Getuid(), os.Getpid())
	logs := func(record string) {
		t.Helper()
		eventually(t, "the log has "+record, func() bool { return strings.Contains(n.log.String(), record) })
	}
	logs(`level=INFO msg="draining: no new operations are accepted until the daemon is started again"` + who)
	impatient, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := n.ctl.Post(impatient, "drain", url.Values{}, struct{}{})
		left <- err
	}()
	eventually(t, "it is asked twice", func() bool { return strings.Count(n.log.String(), `msg="draining: no new`) == 2 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a drain that is not waited for: %v", err)
	}
	logs(`level=WARN msg="draining: the end was not waited for"` + who)
	consumer.do(&transfer.CancelOp{Target: running})
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case err := <-drained:
		if err != nil {
			t.Error(err)
		}
	case <-limit.C:
		t.Error("not drained after the last take ended")
	}
	logs(`level=INFO msg="drained: nothing is in flight"` + who)
}
