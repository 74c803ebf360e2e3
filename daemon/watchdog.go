package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/kvpipe/kvpipe/internal/pulse"
)

// part is what has to answer before the watchdog is fed. ping returns within its context's time.
type part struct {
	name string
	ping func(context.Context) error
}

// parts returns all loops without which the daemon only looks alive.
func (d *Daemon) parts() []part {
	all := []part{{"driver", func(ctx context.Context) error { return d.driver.Do(ctx, func() {}) }}}
	for _, t := range d.carriers.list {
		all = append(all, part{"transport " + t.Name(), t.Ping})
	}
	for name, l := range map[string]*pulse.Listener{"sessions": d.lock.socket, "peers": d.listener, "admin": d.adminSocket, "metrics": d.web} {
		if l != nil {
			all = append(all, part{"accept loop of " + name, l.Ping})
		}
	}
	return all
}

// leastPatience is the shortest watchdog that can be fed.
const leastPatience = 200 * time.Millisecond

// watch feeds the service manager's watchdog, if it has one, until ctx ends. Twice within the watchdog's patience it
// asks every part, and feeds the watchdog if each answers within a quarter of that patience. A part that does not
// answer is named in the log.
func (d *Daemon) watch(ctx context.Context) {
	patience, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("no watchdog", "error", err)
		return
	}
	if patience <= 0 { // 0: none; negative: longer than a Duration can be
		return
	}
	if patience < leastPatience {
		d.log.Warn("the service manager's watchdog may bite before a busy daemon can answer: set WatchdogSec= to 10s or more", "watchdog", patience)
		patience = leastPatience // so that the parts are not asked all the time
	}
	parts := d.parts()
	for {
		wait := patience / 2
		if d.answered(ctx, parts, patience/4) {
			d.notify(sd.SdNotifyWatchdog)
		} else {
			wait = patience / 8 // it may only have been slow, and there still is time
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// answered pings all parts at once and reports whether all answered.
func (d *Daemon) answered(ctx context.Context, parts []part, within time.Duration) bool {
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { errs[i] = p.ping(short) })
	}
	all.Wait()
	ok := true
	for i, err := range errs {
		if err == nil || ctx.Err() != nil {
			continue
		}
		ok = false
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", within)
		}
		d.log.Error("the watchdog is not fed", "part", parts[i].name, "error", err)
	}
	return ok && ctx.Err() == nil
}
