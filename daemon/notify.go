package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// managed reports whether a service manager wants to hear of the daemon (sd_notify(3)).
func managed() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// notifyWait is how long a service manager may take to make room for a message: one that hangs holds nobody else up.
const notifyWait = time.Second

// notify sends words to the service manager, if there is one, and reports whether it was told. A manager that does not
// listen has a problem, but nothing here depends on it. go-systemd's SdNotify would wait for ever where the manager's
// socket is full.
func (d *Daemon) notify(words ...string) bool {
	if !managed() {
		return false
	}
	err := say(&net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"}, strings.Join(words, "\n"))
	if err != nil {
		d.log.Debug("the service manager does not hear", "error", err)
	}
	return err == nil
}

func say(to *net.UnixAddr, text string) error {
	conn, err := net.DialUnix(to.Net, nil, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyWait)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(text))
	return err
}

// reloading and reloaded mark the two ends of a reload, for which the manager of a Type=notify-reload service waits.
func (d *Daemon) reloading() {
	if managed() {
		d.notify(sd.SdNotifyReloading, strings.TrimSpace(sd.SdNotifyMonotonicUsec()))
	}
}

func (d *Daemon) reloaded() { d.notify(sd.SdNotifyReady) }

// stopping asks for as much time as draining and fencing may take, however short the manager's own patience is.
func (d *Daemon) stopping() {
	most := d.stopTime() + stopSlack
	d.notify(sd.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", most.Microseconds()), "STATUS=stopping: transfers in flight may end")
}

const (
	stopSlack   = 5 * time.Second // the daemon gives up before its manager does
	statusEvery = 5 * time.Second
)

// report says that the daemon is ready, again and again until it is heard. Then it keeps the manager's status text up
// to date until ctx ends. It says nothing twice.
func (d *Daemon) report(ctx context.Context) {
	if !managed() {
		return
	}
	t := time.NewTicker(statusEvery)
	defer t.Stop()
	ready := false
	for said := ""; ; {
		if !ready {
			ready = d.notify(sd.SdNotifyReady)
		}
		if text, err := d.summary(ctx); ready && err == nil && text != said && d.notify("STATUS="+text) {
			said = text
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// summary describes the daemon in a line, by numbers that are cheap to get: it walks no list whose length clients
// choose.
func (d *Daemon) summary(ctx context.Context) (string, error) {
	m, err := ask(ctx, d.driver, d.machine.Tally)
	if err != nil {
		return "", err
	}
	up, down := 0, 0
	peers, _ := d.peers.Snapshot()
	for i := range peers {
		if peers[i].State == "up" {
			up++
		} else {
			down++
		}
	}
	u := d.sessions.Usage()
	text := fmt.Sprintf("%d sessions, %v registered; %d operations in flight, %d offers held; peers: %d up, %d down",
		u.Sessions, config.Size(u.Pinned), m.Operations, m.Offers, up, down)
	if d.drains() {
		text = "draining: " + text
	}
	for _, problem := range d.closed.problems() {
		text += "; " + problem.text
	}
	if d.identity != nil {
		if err := d.identity.Valid(); err != nil {
			text += "; no peers: " + err.Error()
		}
	}
	return strings.ReplaceAll(text, "\n", "; "), nil // an error may have a line for each of several files
}
