package daemon

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer/peerpb"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// asks is what the bencher needs of peers. All but a stranger have proved who they are; what is answered is got.
type asks struct{ got chan transfer.Cause }

func (a asks) Secure(node string, _ uint64) bool { return node != "stranger" }

func (a asks) Send(_ string, _ uint64, msg transfer.Msg) { a.got <- msg.(*transfer.MsgKeyAck).Cause }

// TestRequestsOfPeersAreBounded: of one peer as of all, and each that is not begun is answered at once.
func TestRequestsOfPeersAreBounded(t *testing.T) {
	from := asks{make(chan transfer.Cause, 1)}
	b := newBencher("a", &sink{}, func(string) bool { return false })
	b.peers = from
	b.making.Lock() // so that none is done
	ask := func(node, key string) { b.asked(node, 1, &transfer.MsgKey{Key: []byte(key)}) }
	watch := benchSpec{transport: "tcp", size: 4096, blocks: 1}.offerKey(1)
	answered := func(node, key string, want transfer.Reason) {
		t.Helper()
		ask(node, key)
		if got := <-from.got; got.Reason != want {
			t.Errorf("%s asks for %q: %v, want %v", node, key, got, want)
		}
	}
	for i := range benchRequests / benchRequestsOf {
		node := fmt.Sprintf("mad%d", i)
		for range benchRequestsOf {
			ask(node, watch)
		}
		answered(node, watch, transfer.Busy)
		answered(node, benchHello, transfer.OK)
	}
	answered("b", watch, transfer.Busy)
	answered("stranger", watch, transfer.Denied)
	b.making.Unlock()
	for range benchRequests {
		if got := <-from.got; got.Reason != transfer.Unavailable {
			t.Errorf("%v, want unavailable: no transport is allowed", got)
		}
	}
	answered("b", watch, transfer.Unavailable)
	b.wg.Wait()
	if len(b.requests) != 0 || b.underWay != 0 {
		t.Errorf("under way afterwards: %d of %v", b.underWay, b.requests)
	}
	b.end()
	answered("b", benchHello, transfer.Unavailable)
}

// TestAPeerThatFloodsRequests on a channel of its own makes no goroutine for each: they go past the queue that holds up others.
func TestAPeerThatFloodsRequests(t *testing.T) {
	ca := t.TempDir()
	n := start(t, "a", ca, func(c *config.Config) { c.Peers.Heartbeat = config.Duration(patience) }) // of the peer nothing else comes
	if err := pki.IssueNode(ca, ca, "mad", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	cert, key := pki.NodeFiles(ca, "mad")
	id, err := pki.Open(filepath.Join(ca, pki.CAFile), cert, key, "mad")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Dial("tcp", n.listenAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	_ = tcp.SetDeadline(time.Now().Add(patience))
	conn := tls.Client(tcp, id.Config("kvpipe/1"))
	in := bufio.NewReader(conn)
	write := func(all ...*peerpb.Frame) {
		t.Helper()
		var out []byte
		for _, f := range all {
			b, err := proto.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(b))), b...)
		}
		if _, err := conn.Write(out); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *peerpb.Frame {
		t.Helper()
		var head [4]byte
		f := new(peerpb.Frame)
		_, err := io.ReadFull(in, head[:])
		if err == nil {
			b := make([]byte, binary.LittleEndian.Uint32(head[:]))
			if _, err = io.ReadFull(in, b); err == nil {
				err = proto.Unmarshal(b, f)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	write(&peerpb.Frame{Kind: &peerpb.Frame_Hello{Hello: &peerpb.Hello{ProtoMin: 1, ProtoMax: 1, Node: "mad", Incarnation: 1, Version: "mad"}}})
	epoch := read().GetHello().GetEpoch()

	n.bench.making.Lock() // so that nothing is done of what is asked for
	defer n.bench.making.Unlock()
	before := runtime.NumGoroutine()
	const flood = 2000
	var all []*peerpb.Frame
	for i := range uint64(flood) {
		watch := benchSpec{transport: "tcp", size: 4096, blocks: 1, name: i}.offerKey(1)
		for j, key := range []string{benchHello, watch} {
			all = append(all, &peerpb.Frame{Epoch: epoch, Kind: &peerpb.Frame_Key{Key: &peerpb.Key{Id: 2*i + uint64(j), Engine: "mad", Key: []byte(key), Token: []byte("mad-mad-mad-mad-")}}})
		}
	}
	write(all...)
	for hellos, busy := 0, 0; hellos < flood || busy < flood-benchRequestsOf; {
		ack := read().GetKeyAck()
		switch c := ack.GetCause(); {
		case ack == nil: // a heartbeat
		case c.GetReason() == uint32(transfer.OK):
			hellos++
		case c.GetReason() == uint32(transfer.Busy) && strings.Contains(c.GetText(), "try again later"):
			busy++
		default:
			t.Fatalf("answer %v", ack)
		}
	}
	if more := runtime.NumGoroutine() - before; more > 2*benchRequestsOf {
		t.Errorf("%d goroutines more than before", more)
	}
}
