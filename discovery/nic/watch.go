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

// WatchConfig configures Watch. All of it is optional.
type WatchConfig struct {
	Source  Source
	Changed func(before, now *Inventory) // called after each change, by one goroutine; Close waits for it
	Settle  time.Duration                // how long to wait for further events before everything is read; 0: 20ms
	Every   time.Duration                // how often everything is read without an event; 0: 30s
}

// Watcher keeps an inventory up to date. The kernel's events only say when to look. Everything is read each time, so
// a lost event makes the inventory late but never wrong.
type Watcher struct {
	cfg    WatchConfig
	now    atomic.Pointer[Inventory]
	dirty  chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Watch takes a first inventory and follows changes until Close. Where netlink is forbidden it looks again now and
// then.
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
	// rtnetlink does not announce that RDMA devices come and go; uevents do. They are text, not netlink messages, but
	// that there is one is enough.
	w.wg.Go(func() { w.listen(syscall.NETLINK_KOBJECT_UEVENT, 1) })
	return w
}

// Current returns the latest inventory. Any goroutine may call it.
func (w *Watcher) Current() *Inventory { return w.now.Load() }

// Close ends the watching. It returns when all of the watcher's goroutines have ended.
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
	var took time.Duration // the last read
	for w.wait(w.cfg.Every, w.dirty) && w.wait(calm(w.cfg.Settle, took), nil) {
		select {
		case <-w.dirty: // what came during that wait is seen by this read
		default:
		}
		start := time.Now()
		before := w.now.Load()
		now := w.cfg.Source.read(before.Links)
		took = time.Since(start)
		if !reflect.DeepEqual(now, before) {
			w.now.Store(now)
			if w.cfg.Changed != nil {
				w.cfg.Changed(before, now)
			}
		}
	}
}

// calm is how long to wait for further events, after a look that took so long. Where links come and go all the time,
// as those of containers do, looking then costs at most a tenth of a CPU, unless a look takes longer than 100ms.
func calm(settle, took time.Duration) time.Duration {
	return max(settle, min(9*took, 900*time.Millisecond))
}

// wait waits for d or for sooner, whichever comes first. It returns false once the watcher is closed.
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

// listen calls touch at each event of some groups of a netlink family, until the watcher is closed. The socket is not
// nl.Subscribe's: if the kernel refuses to bind that one, it closes its descriptor twice, the second time when the
// number may be another file's.
func (w *Watcher) listen(family int, groups ...uint) {
	for {
		if s, err := sys.NetlinkEvents(family, groups...); err == nil {
			stop := context.AfterFunc(w.ctx, func() { _ = s.Close() })
			w.touch() // events before this were not heard
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

// event waits for an event, whatever it says. It returns false if the socket has become useless.
func (w *Watcher) event(s *os.File) bool {
	var b [64]byte
	_, err := s.Read(b[:])
	return err == nil ||
		errors.Is(err, syscall.ENOBUFS) || // events were lost, so there were some
		errors.Is(err, io.EOF) // an empty one, sent by somebody with privileges
}
