// Command kvpiped is the daemon of one node: it moves KV-cache blocks between the engines of this node and those of others.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/kvpipe/kvpipe/daemon"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/version"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !daemon.Failed(err) {
			fmt.Fprintln(os.Stderr, "kvpiped:", err)
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.version {
		fmt.Println("kvpiped", version.String())
		return nil
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	if o.check {
		if err := daemon.CheckFiles(c); err != nil {
			return err
		}
		fmt.Printf("%s: ok\n", cmp.Or(o.file, "the flags"))
		return nil
	}
	return serve(o, c)
}

// serve runs until SIGTERM or SIGINT. SIGHUP makes it read the file again.
func serve(o *options, c config.Config) error {
	// Requests to stop have a channel of their own: many SIGHUPs, also while the daemon starts, take no place from them.
	ends, hups := make(chan os.Signal, 4), make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(ends)
	defer signal.Stop(hups)
	signal.Ignore(syscall.SIGPIPE) // if the log's reader goes away, records are lost, but the daemon goes on
	d, err := daemon.New(c, daemon.Options{Dev: o.dev, Version: version.String(), Sys: o.sys, Sockets: activation.FilesWithNames()})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	reload := make(chan struct{}, 1)
	defer close(reload)
	go func() { // in a goroutine, because reading a file may never end, and the daemon must stop all the same
		for range reload {
			d.Reload(o.config)
		}
	}()
	var stops stopping
	for {
		select {
		case err := <-done:
			return err
		case <-hups:
			select {
			case reload <- struct{}{}:
			default: // one is pending, and will read the file as it is now
			}
		case s := <-ends:
			if stops.again(s, time.Now()) {
				return errors.New("stopped at once by a second signal: transfers in flight were not waited for")
			}
			stop()
		}
	}
}
