package nic

import (
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// WatchConfig is what Watch needs; all of it may be left out.
type WatchConfig struct {
	Source  Source
	Changed func(before, now *Inventory) // called after each change, by one goroutine; Close waits for it
	Settle  time.Duration                // how long further events are waited for before all is read; 0: 20ms
	Every   time.Duration                // how often all is read although nothing was said; 0: 30s
}

// Watcher keeps an inventory up to date. The kernel's events only say when to look: what is published is always read as a whole, so an event
// that was lost costs time and never truth.
type Watcher struct {
	cfg    WatchConfig
	now    atomic.Pointer[Inventory]
	dirty  chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Watch takes a first inventory and follows it until Close. Where netlink is forbidden it looks again now and then.
func Watch(cfg WatchConfig) *Watcher {
	if cfg.Settle <= 0 {
		cfg.Settle = 20 * time.Millisecond
	}
	if cfg.Every <= 0 {
		cfg.Every = 30 * time.Second
	}
	w := &Watcher{cfg: cfg, dirty: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.now.Store(cfg.Source.Read())
	w.wg.Go(w.follow)
	w.wg.Go(func() {
		w.listen(syscall.NETLINK_ROUTE, syscall.RTNLGRP_LINK, syscall.RTNLGRP_IPV4_IFADDR, syscall.RTNLGRP_IPV6_IFADDR)
	})
	// RDMA devices come and go without a word of rtnetlink's. What the kernel says here is text and no netlink messages; that it says
	// something is enough.
	w.wg.Go(func() { w.listen(syscall.NETLINK_KOBJECT_UEVENT, 1) })
	return w
}

// Current is the inventory as of now. Any goroutine may ask.
func (w *Watcher) Current() *Inventory { return w.now.Load() }

// Close ends the watching and returns when no goroutine of it runs any more.
func (w *Watcher) Close() {
	w.cancel()
	w.wg.Wait()
}

// touch asks for a look.
func (w *Watcher) touch() {
	select {
	case w.dirty <- struct{}{}:
	default: // one is due anyway
	}
}

func (w *Watcher) follow() {
	var took time.Duration // to read, the last time
	for w.wait(w.cfg.Every, w.dirty) && w.wait(calm(w.cfg.Settle, took), nil) {
		select {
		case <-w.dirty: // what came while it settled is seen now
		default:
		}
		start := time.Now()
		now := w.cfg.Source.Read()
		took = time.Since(start)
		if before := w.now.Load(); !reflect.DeepEqual(now, before) {
			w.now.Store(now)
			if w.cfg.Changed != nil {
				w.cfg.Changed(before, now)
			}
		}
	}
}

// calm is how long further events are waited for, after a look that took so long: where links come and go all the time, as those of
// containers do, looking costs a tenth of a CPU at most, unless a look takes longer than 100ms.
func calm(settle, took time.Duration) time.Duration {
	return max(settle, min(9*took, 900*time.Millisecond))
}

// wait waits until d has passed or sooner says so; false when the watcher is closed.
func (w *Watcher) wait(d time.Duration, sooner <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-sooner:
	case <-w.ctx.Done():
		return false
	}
	return true
}

// listen touches at each event of some groups of a netlink family, as long as the watcher lives. The socket is not nl.Subscribe's:
// where the kernel refuses to bind it that closes its descriptor twice, the second time when the number may be another one's.
func (w *Watcher) listen(family int, groups ...uint) {
	for {
		if s, err := sys.NetlinkEvents(family, groups...); err == nil {
			stop := context.AfterFunc(w.ctx, func() { _ = s.Close() })
			w.touch() // what happened before is not told
			for w.event(s) {
				w.touch()
			}
			if stop() {
				_ = s.Close()
			}
		}
		if !w.wait(w.cfg.Every, nil) {
			return
		}
	}
}

// event waits for one; false when the socket is of no use any more. What it says does not matter.
func (w *Watcher) event(s *os.File) bool {
	var b [64]byte
	_, err := s.Read(b[:])
	return err == nil ||
		errors.Is(err, syscall.ENOBUFS) || // events were lost: there were some
		errors.Is(err, io.EOF) // an empty one, of somebody with privileges
}
