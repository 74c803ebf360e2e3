package hostile

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/ring"
	"github.com/kvpipe/kvpipe/daemon/session/sessiontest"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
	"github.com/kvpipe/kvpipe/test/cluster"
)

// forkEnv makes this program one of the two processes of forks: "WAY,SEED,SOCKET", and for the child "...,WELCOME".
const forkEnv = "KVPIPE_HOSTILE_FORK"

// Descriptors of the child, behind those of its input and output: what Inherit takes, and the memory that was registered.
const firstInherited, inheritedMemory = 3, 8

// forked is the life of the process that forks, or of its child. What they say is for forks: "session ID", "full house" if the daemon has no
// place for it, "child REASON": how the session ended, "child dies": before it has.
func forked(what string) int {
	args := strings.Split(what, ",")
	seed, err := strconv.ParseUint(args[1], 10, 64)
	switch {
	case err != nil:
	case len(args) == 3:
		err = parent(args[0], args[2], what, rand.New(rand.NewPCG(seed, 0)))
	case args[0] == childHello:
		err = lateHello()
	default:
		err = child(args[0], args[2], args[3], rand.New(rand.NewPCG(seed, 1)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	return 0
}

func parent(way, socket, what string, r *rand.Rand) error {
	if way == childHello {
		conn, err := sys.DialSeqpacket(context.Background(), socket)
		if err != nil {
			return err
		}
		return sys.Control(conn, func(fd int) error { return fork(what+",", fd) })
	}
	c, err := sessiontest.Dial(socket, forker)
	if reason := sessiontest.Reason(err); reason == transfer.Quota || reason == transfer.Busy {
		fmt.Println("full house")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("session %#x\n", c.Welcome.Session)
	memory, err := furnish(c)
	if err != nil {
		return err
	}
	err = c.Descriptors(func(fds [5]int) error {
		return fork(what+","+hex.EncodeToString(ring.Append(nil, &c.Welcome)), append(fds[:], memory)...)
	})
	if err != nil {
		return err
	}
	share(c, memory, r)
	switch way {
	case childDies:
		share(c, memory, r)
		end(c, r)
	case childEnds, childMoves:
		_, err = outlive(c, memory, r)
	}
	return err
}

var forker = sessiontest.Options{Engine: "forker", SQ: 16, CQ: 16, Records: 1 << 16, Timeout: cluster.Patience}

// fork starts this program again with the descriptors, as a child has them from its parent. Their open files are shared: nothing may
// change their flags on the way, as os/exec does.
func fork(what string, fds ...int) error {
	files := []uintptr{0, 1, 2}
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	if err := os.Setenv(forkEnv, what); err != nil {
		return err
	}
	_, err := syscall.ForkExec("/proc/self/exe", []string{"child"}, &syscall.ProcAttr{Env: os.Environ(), Files: files})
	return err
}

func child(way, socket, welcome string, r *rand.Rand) error {
	b, err := hex.DecodeString(welcome)
	if err != nil {
		return err
	}
	var w ring.Welcome
	if _, err := ring.Decode(b, &w, "welcome"); err != nil {
		return err
	}
	var fds [5]int
	for i := range fds {
		fds[i] = firstInherited + i
	}
	c, err := sessiontest.Inherit(fds, w, cluster.Patience)
	if err != nil {
		return err
	}
	share(c, inheritedMemory, r)
	switch way {
	case childDies:
		fmt.Println("child dies")
		return nil
	case childEnds:
		_, _ = c.Send(ring.CtlBye, nil) // unless it has ended already
	case childMoves:
		o := forker
		o.Session, o.Secret = w.Session, w.Secret
		if own, err := sessiontest.Dial(socket, o); err == nil {
			end(own, r)
		} else if reason := sessiontest.Reason(err); reason != transfer.Quota && reason != transfer.Busy {
			return err
		} else {
			_, _ = c.Send(ring.CtlBye, nil)
		}
	}
	reason, err := outlive(c, inheritedMemory, r)
	if err != nil {
		return err
	}
	// What it holds is the daemon's no more.
	mem, err := sys.Mmap(inheritedMemory, memoryBlocks*memoryBlock, sys.ProtWrite)
	if err != nil {
		return err
	}
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for range 20 {
		use(c, inheritedMemory, r)
	}
	fmt.Println("child", reason)
	_, err = io.Copy(io.Discard, os.Stdin) // until it is let go
	return err
}

// lateHello says HELLO once the process that connected has ended: nobody would see this session's process end.
func lateHello() error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	conn, err := sys.UnixConn(firstInherited)
	if err != nil {
		return err
	}
	_, err = sessiontest.Hello(conn, forker)
	fmt.Println("child", uint32(sessiontest.Reason(err)))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// share uses the session for a while, as if nobody else did.
func share(c *sessiontest.Client, memory int, r *rand.Rand) {
	for n := 1 + r.IntN(200); n > 0 && c.Rings.Closed() == 0; n-- {
		use(c, memory, r)
	}
}

// outlive returns why the daemon has ended the session, once it has ended the connection too. Until then it goes on, or keeps still: who
// does nothing wrong is ended all the same when the process is gone that opened the session.
func outlive(c *sessiontest.Client, memory int, r *rand.Rand) (reason uint32, err error) {
	limit := time.Now().Add(cluster.Patience)
	for still := r.IntN(2) == 0; !still && c.Rings.Closed() == 0 && time.Now().Before(limit); {
		use(c, memory, r)
	}
	for _ = c.Conn.SetReadDeadline(limit); err == nil; {
		var fds []int
		_, _, fds, err = c.Receive(1)
		sys.CloseAll(fds)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, errors.New("the session does not end")
	}
	return c.Rings.Closed(), nil
}

// use does one thing that a client may do, but not two at once: another process is at the same.
func use(c *sessiontest.Client, memory int, r *rand.Rand) {
	mem := c.Bytes()
	switch k := r.IntN(64); {
	case k < 26: // behind what either of them submitted last, or not
		if k > 0 {
			c.Rings.Follow()
		}
		e, rec := sessiontest.Encode(anyOp(r))
		e.UserData = 1 + r.Uint64N(1<<(4+r.IntN(40)))
		_, _ = c.Rings.Submit(e, rec)
	case k < 34:
		_ = c.Wake()
	case k < 40: // collects whatever has completed, and meanwhile the other one has submitted
		tail, _, completed, _ := c.Rings.Indices()
		c.Rings.Corrupt(tail, completed)
	case k < 50:
		ask(c, memory, r)
	case k < 60: // the answer is to either of them
		_ = c.Conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _, fds, _ := c.Receive(1)
		sys.CloseAll(fds)
	case k < 62:
		_ = sys.PunchHole(memory, int64(r.IntN(memoryBlocks))*memoryBlock, memoryBlock)
	case k < 63:
		_ = c.Rings.Progress(r.Uint64())
	default:
		binary.LittleEndian.PutUint64(mem[r.IntN(len(mem)/8)*8:], r.Uint64())
	}
}

// ask sends a control message of the kinds that change what the session has.
func ask(c *sessiontest.Client, memory int, r *rand.Rand) {
	region := (1+r.Uint64N(3))<<32 | r.Uint64N(3)
	switch r.IntN(8) {
	case 0:
		_, _ = c.Send(ring.CtlRegister, ring.Append(nil, &ring.Register{Bytes: memoryBlocks * memoryBlock, Kind: ring.RegisterMemfd}), memory)
	case 1:
		_, _ = c.Send(ring.CtlUnregister, ring.Append(nil, &ring.Unregister{Region: region, TimeoutNS: 1e8}))
	case 2:
		_, _ = c.Send(ring.CtlInvalidate, ring.Append(nil, &ring.Unregister{Region: region, TimeoutNS: 1e8}))
	case 3:
		_, _ = c.Send(ring.CtlRevalidate, ring.Append(nil, &ring.Revalidate{Region: region}), memory)
	case 4:
		_, _ = c.Send(ring.CtlLayout, ring.Append(nil, &ring.LayoutMsg{NViews: r.Uint32N(2), TotalViews: r.Uint32N(3)}))
	default:
		_, _ = c.Send(ring.CtlPing, nil)
	}
}
