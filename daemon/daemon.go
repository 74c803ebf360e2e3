package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/driver"
	"github.com/kvpipe/kvpipe/daemon/metrics"
	"github.com/kvpipe/kvpipe/daemon/peer"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/place"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/daemon/transport/tcp"
	"github.com/kvpipe/kvpipe/discovery/gpu"
	"github.com/kvpipe/kvpipe/internal/pulse"
)

// Options are what the configuration does not say.
type Options struct {
	Dev     bool
	Version string
	Log     *slog.Logger          // nil: stderr, as the configuration says
	Sockets map[string][]*os.File // at which the service manager listens, by name; New takes them over
	Sys     string                // root of sysfs; "": /sys
}

// Daemon is one node's daemon. Make it with New and call Run once. Reload may be called at any time in between.
type Daemon struct {
	opts        Options
	log         *slog.Logger
	level       *slog.LevelVar
	incarnation uint64
	started     time.Time
	identity    *pki.Identity

	machine  *transfer.Machine
	driver   *driver.Driver
	sessions *session.Server
	peers    *peer.Manager
	bench    *bencher
	tally    *tally
	carriers *carriers
	tcp      *tcp.Transport
	gpus     *gpu.Watcher
	hardware *hardware
	places   *place.Places // nil: there is nothing to choose
	unplaced string        // why places is nil
	nics     *nics

	listener   *pulse.Listener // peers; nil when off
	early      []early         // addresses listened at before they are there
	congestion string          // congestion control of data links; "": not known
	closed     ports           // those that should be open but are not
	lock       lock            // of the client socket
	admin      *admin.Server
	metrics    *metrics.Collector

	adminSocket, web *pulse.Listener // of admin and metrics; web is nil when off
	adminMade        os.FileInfo     // the admin socket's file
	webServer        *http.Server
	crowd            crowd // of web

	ballast []byte // of the heap: see tune

	standing time.Duration // the constant of that name, except in tests

	mu       sync.Mutex
	cfg      config.Config
	draining bool
}

const (
	// endTimeout bounds how long the sessions of a stopping daemon may take to be fenced. unmapTime is added for each
	// GiB to unmap.
	endTimeout = 5 * time.Second
	unmapTime  = 100 * time.Millisecond
	// standing is how much longer all of the end may take, for files that are closed and whatever else.
	standing = 10 * time.Second
)

// New opens everything that can fail (ports, sockets), so that a daemon that runs is one that works, at least within
// its node. Bad certificates can be replaced while it runs, and ports that others have are waited for. A failed New
// leaves nothing behind.
func New(c config.Config, o Options) (*Daemon, error) {
	d := &Daemon{opts: o, cfg: c, started: time.Now(), level: new(slog.LevelVar), incarnation: incarnation(), tally: newTally(), standing: standing}
	defer d.opts.forget()
	if err := d.open(); err != nil {
		d.closeListeners()
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func (d *Daemon) open() (err error) {
	d.log = d.opts.Log
	if d.log == nil {
		d.log = newLog(d.cfg.Log, d.level)
	}
	cpus, err := d.confine()
	if err != nil {
		return err
	}
	d.ballast = tune(d.cfg, cpus)
	if d.congestion, err = congestion(d.cfg); err != nil {
		return err
	}
	if d.identity, err = identity(d.cfg); err != nil {
		d.log.Error(noPeers, "error", err)
	}
	if err := d.listen(); err != nil {
		return err
	}
	d.hardware = newHardware(cmp.Or(d.opts.Sys, "/sys"))
	d.openPlaces()
	d.openNICs()
	if err := d.assemble(); err != nil {
		return err
	}
	if err := d.openAdmin(); err != nil {
		return err
	}
	d.watchGPUs() // cannot fail
	return nil
}

// incarnation names this run of the daemon; never 0.
func incarnation() uint64 { return random() | 1 }

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Run serves until ctx ends, then drains: there is no new work, transfers in flight get advanced.drain_wait to end, and
// then everything is fenced and given back.
func (d *Daemon) Run(ctx context.Context) error {
	run, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { defer wg.Done(); d.driver.Run(run) }()
	d.peers.Start()
	errs := make(chan error, 3)
	serve := func(f func() error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f(); err != nil {
				errs <- err
			}
		}()
	}
	serve(func() error { return d.sessions.Serve(d.lock.socket) })
	serve(d.serveAdmin)
	if d.web != nil {
		serve(d.serveMetrics)
	}
	var failed error
	d.nics.say()
	d.sayReady()
	if d.cfg.Insecure {
		d.log.Warn("insecure: peers are not authenticated; loopback addresses alone are served")
	}
	if d.cfg.DataPlain {
		d.log.Warn("data_plain: data links to peers that say so too are not encrypted")
	}
	if d.identity != nil {
		if until, err := d.identity.Problem(); err == nil && time.Until(until) < certificateSoon {
			if ca := d.identity.Outlived(); ca != "" {
				d.log.Warn("the certificate's CA ends soon: make another one, and new certificates of all nodes (kvpipectl certs)", "file", d.cfg.TLS.CA, "ca", ca, "until", until)
			} else {
				d.log.Warn("the certificate ends soon: make it anew (kvpipectl certs node)", "file", d.cfg.TLS.Cert, "until", until)
			}
		}
	}
	well, unwell := context.WithCancel(run)
	wg.Go(func() { d.report(well) })
	wg.Go(func() { d.watch(well) })
	select {
	case <-ctx.Done():
	case failed = <-errs:
	}
	d.log.Info("stopping", "node", d.cfg.Node)
	unwell()
	d.stopping()
	return errors.Join(failed, d.within(d.stopTime(), func() error {
		defer d.stopGPUs()()
		d.shutDown()
		stop()
		wg.Wait()
		err := d.release()
		d.log.Info("stopped", "node", d.cfg.Node)
		return err
	}))
}

// sayReady also names the addresses at which nobody can connect yet: "listen" alone would look as if others could reach
// this daemon.
func (d *Daemon) sayReady() {
	says := []any{
		"node", d.cfg.Node, "version", d.opts.Version, "socket", d.cfg.Socket, "listen", d.listenAddr(),
		"transports", d.cfg.Transports, "insecure", d.cfg.Insecure, "data_plain", d.cfg.DataPlain, "epoch", d.epoch(),
	}
	var keys []string
	for _, w := range d.unreachable() {
		keys = append(keys, w.kind)
	}
	if len(keys) > 0 {
		says = append(says, "unreachable", keys)
	}
	d.log.Info("ready", says...)
}

// within ends the daemon by calling end. It gives up after most, when something stands still for ever: a driver in a
// system call that does not return, or NVML. The end of the process then gives back all that the daemon has, and
// clients and peers see that it is gone.
func (d *Daemon) within(most time.Duration, end func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return fmt.Errorf("stopping took longer than %s: something stands still (records of the watchdog, or a stack dump by SIGQUIT next time, say what); the process ends without it", most)
	}
}

// shutDown ends what others see, while the driver still runs: transfers drain, sessions are fenced, channels say goodbye.
func (d *Daemon) shutDown() {
	d.drain()
	ctx, cancel := context.WithTimeout(context.Background(), d.endTime())
	defer cancel()
	d.driver.Event(transfer.Ending{})
	// The channels first: a peer that hears nothing more asks the next daemon again, which has the offers back.
	d.peers.Close()
	if err := d.sessions.EndAll(ctx, transfer.Cause{Reason: transfer.Unavailable, Text: "the daemon is stopping: connect again when it is back"}); err != nil {
		d.log.Warn("stopping with sessions that are not fenced", "error", err)
	}
	if err := d.bench.finish(ctx); err != nil {
		d.log.Warn("stopping", "error", err)
	}
	d.closeListeners()
}

// Drain makes the daemon refuse new operations and returns once those in flight have ended. kvpipectl drain calls it
// before a node is taken out of service. The log says who asked, since a drained daemon looks well and serves nobody.
func (d *Daemon) Drain(ctx context.Context) error {
	says := []any{"node", d.cfg.Node}
	if by, known := admin.Caller(ctx); known {
		says = append(says, "uid", by.UID, "pid", by.PID)
	}
	d.log.Info("draining: no new operations are accepted until the daemon is started again", says...)
	if err := d.drainFor(ctx, transfer.Drain{}); err != nil {
		d.log.Warn("draining: the end was not waited for", append(says, "error", err)...)
		return err
	}
	d.log.Info("drained: nothing is in flight", says...)
	return nil
}

func (d *Daemon) drainFor(ctx context.Context, how transfer.Drain) error {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	d.driver.Event(how)
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for left := 0; ; {
		n, err := d.busy(ctx)
		switch {
		case err == nil && n == 0:
			return nil
		case ctx.Err() != nil && left > 0:
			return fmt.Errorf("%d transfers are still in flight: %w", left, ctx.Err())
		case err != nil:
			return err
		}
		left = n
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

func (d *Daemon) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), d.drainWait())
	defer cancel()
	if err := d.drainFor(ctx, transfer.Drain{Stop: true}); err != nil {
		d.log.Warn("stopping without waiting longer", "error", err)
	}
}

// drains reports whether the daemon refuses new operations.
func (d *Daemon) drains() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// stopTime is the longest that a stop may take.
func (d *Daemon) stopTime() time.Duration { return d.drainWait() + d.endTime() + d.standing }

func (d *Daemon) endTime() time.Duration {
	return endTimeout + time.Duration(d.sessions.Pinned()>>30)*unmapTime
}

func (d *Daemon) drainWait() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg.Advanced.DrainWait.D()
}

// busy counts transfers in flight.
func (d *Daemon) busy(ctx context.Context) (int, error) { return ask(ctx, d.driver, d.machine.Busy) }

// ask runs f where the machine may be read, and returns its result.
func ask[T any](ctx context.Context, d *driver.Driver, f func() T) (T, error) {
	var v, none T
	if err := d.Do(ctx, func() { v = f() }); err != nil {
		return none, err // f may still run, and write v
	}
	return v, nil
}

// epoch is the part of the incarnation that clients see.
func (d *Daemon) epoch() uint32 { return uint32(d.incarnation>>32)&^ownEpoch | 1 }

// ownEpoch is a bit that no epoch has. It keeps the ids of the daemon's own sessions apart from those of clients.
const ownEpoch = 1 << 31
