package ring

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// echo is the daemon's part: it answers each submission with its own record, and sleeps when there is nothing to do.
func echo(sq *Submissions, cq *Completions, n int, sleep func(), ring func()) error {
	var scratch []byte
	for i := 0; i < n; {
		var e SQE
		ok, err := sq.Next(&e)
		if err != nil {
			return err
		}
		if !ok {
			if sq.Arm() {
				sleep()
				sq.Disarm()
			}
			continue
		}
		if scratch, err = sq.Record(scratch, e.RecOff, e.RecLen); err != nil {
			return err
		}
		c := CQE{UserData: e.UserData}
		for cq.Room() == 0 || cq.Room() < len(scratch) {
			runtime.Gosched() // the client has to consume
			if _, _, err := cq.Consumed(); err != nil {
				return err
			}
		}
		if i%3 == 0 && cq.Dozing() { // it is about to have something
			ring()
		}
		if err := cq.Put(&c, scratch, false); err != nil {
			return err
		}
		sq.Advance()
		if cq.Waiting() {
			ring()
		}
		i++
	}
	return nil
}

// ask is the client's part: it submits n records of changing size and checks every answer.
func ask(c *Client, n int, sleep func(), ring func()) error {
	record := func(i int) []byte {
		b := make([]byte, i%97)
		for k := range b {
			b[k] = byte(i + k)
		}
		return b
	}
	sent := 0
	for got := 0; got < n; {
		for sent < n {
			wake, err := c.Submit(SQE{UserData: uint64(sent) + 1}, record(sent))
			if err != nil {
				break // no room: collect first
			}
			sent++
			if wake {
				ring()
			}
		}
		e, result, ok := c.Next()
		if !ok {
			if c.Arm() {
				sleep()
				c.Disarm()
			}
			continue
		}
		if want := record(got); e.UserData != uint64(got)+1 || string(result) != string(want) {
			return fmt.Errorf("answer %d is %d with %x, want %x", got, e.UserData, result, want)
		}
		got++
	}
	return nil
}

// TestTortureOnHeap runs both ends under the race detector. A lost wake-up hangs the test.
func TestTortureOnHeap(t *testing.T) {
	n := 20000
	if testing.Short() {
		n = 2000
	}
	p := newPair(t, small)
	toDaemon, toClient := make(chan struct{}, 1), make(chan struct{}, 1)
	ring := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	done := make(chan error, 1)
	go func() { done <- echo(p.sq, p.cq, n, func() { <-toDaemon }, ring(toClient)) }()
	asked := make(chan error, 1)
	go func() { asked <- ask(p.client, n, func() { <-toClient }, ring(toDaemon)) }()
	for range 2 {
		select { // whichever fails first leaves the other waiting
		case err := <-done:
			noErr(t, err)
		case err := <-asked:
			noErr(t, err)
		}
	}
}

const childEnv = "KVPIPE_RING_TEST_CHILD"

// childMain is the client in a process of its own: descriptors 3 to 6 are ring_c, ring_d, and the two eventfds.
func childMain() int {
	n, err := strconv.Atoi(os.Getenv(childEnv))
	if err != nil {
		return 2
	}
	if err := childAsk(n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childAsk(n int) error {
	g, err := NewGeometry(small)
	if err != nil {
		return err
	}
	c, err := sys.Mmap(3, g.CBytes, sys.ProtWrite)
	if err != nil {
		return err
	}
	d, err := sys.Mmap(4, g.DBytes, sys.ProtRead)
	if err != nil {
		return err
	}
	if _, err := sys.Mmap(4, g.DBytes, sys.ProtWrite); err == nil {
		return fmt.Errorf("ring_d can be mapped for writing")
	}
	client, err := NewClient(g.Table(), c, d)
	if err != nil {
		return err
	}
	return ask(client, n, func() { _, _ = sys.EventfdRead(6) }, func() { _ = sys.EventfdSignal(5) })
}

// TestTortureAcrossProcesses runs the client in another process, on sealed memfds and eventfds.
func TestTortureAcrossProcesses(t *testing.T) {
	const n = 20000
	g, err := NewGeometry(small)
	noErr(t, err)
	fdC, fdD := memfds(t, g)
	c, err := sys.Mmap(fdC, g.CBytes, sys.ProtRead)
	noErr(t, err)
	defer sys.Munmap(c)
	d, err := sys.Mmap(fdD, g.DBytes, sys.ProtWrite)
	noErr(t, err)
	defer sys.Munmap(d)
	noErr(t, sys.AddSeals(fdC, sys.SealSize|sys.SealSeal))
	noErr(t, sys.AddSeals(fdD, sys.SealSize|sys.SealFutureWrite|sys.SealSeal))
	var events [2]int
	for i := range events {
		events[i], err = sys.EventfdCreate(true)
		noErr(t, err)
		defer sys.Close(events[i])
	}

	self, err := os.Executable()
	noErr(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	for _, fd := range []int{fdC, fdD, events[0], events[1]} {
		own, err := sys.Dup(fd)
		noErr(t, err)
		f := os.NewFile(uintptr(own), "passed")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	noErr(t, cmd.Start())
	gone := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		gone <- err
		_ = sys.EventfdSignal(events[0]) // nobody else would wake us
	}()

	var early error
	sleep := func() {
		_, _ = sys.EventfdRead(events[0])
		select {
		case err := <-gone:
			early = err
			gone <- err
		default:
		}
	}
	sq, cq := NewSubmissions(&g, c, d), NewCompletions(&g, c, d)
	done := 0
	for done < n && early == nil {
		noErr(t, echo(sq, cq, min(1000, n-done), sleep, func() { _ = sys.EventfdSignal(events[1]) }))
		done += min(1000, n-done)
	}
	if err := <-gone; err != nil {
		t.Fatalf("client process: %v", err)
	}
}
