package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/kvpipe/kvpipe/daemon"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// defaultFile is read if neither --config nor --dev is given.
const defaultFile = "/etc/kvpipe/kvpiped.toml"

// options are the command line. What is set there wins over the file.
type options struct {
	file           string
	check, version bool
	dev            bool
	sys            string
	flags          daemon.Flags
}

func parse(args []string) (*options, error) {
	o := &options{flags: daemon.Flags{Peers: map[string]string{}}}
	f := flag.NewFlagSet("kvpiped", flag.ContinueOnError)
	f.StringVar(&o.file, "config", "", "configuration `FILE` (default "+defaultFile+"; none with --dev)")
	f.BoolVar(&o.check, "check-config", false, "check the configuration and exit")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	f.BoolVar(&o.dev, "dev", false, "run unprivileged, without a configuration file, with a CA of its own making")
	f.StringVar(&o.flags.Node, "node", "", "this node's `NAME` (default: host name)")
	f.StringVar(&o.flags.StateDir, "state-dir", "", "with --dev: private `DIR` for the sockets (default $XDG_RUNTIME_DIR/kvpipe, else /tmp/kvpipe-UID)")
	f.StringVar(&o.flags.Socket, "socket", "", "`PATH` of the socket for engines")
	f.StringVar(&o.flags.Listen, "listen", "", "`HOST:PORT` for peers, \"off\" for none")
	f.StringVar(&o.flags.Metrics, "metrics", "", "`HOST:PORT` of metrics and health, \"off\" for none")
	f.StringVar(&o.flags.Admin, "admin", "", "`PATH` of the admin socket")
	f.StringVar(&o.flags.CA, "ca", "", "with --dev: `DIR` of the CA; daemons that share it trust each other, the first one makes it")
	f.StringVar(&o.sys, "sys", "", "with --dev: `DIR` to look for NUMA nodes and PCI devices in, such as a copy of another machine's (default /sys)")
	f.Func("peer", "another node as `NAME=HOST:PORT`; may be repeated", func(s string) error {
		name, addr, ok := strings.Cut(s, "=")
		if !ok || name == "" || addr == "" {
			return fmt.Errorf("give NAME=HOST:PORT")
		}
		o.flags.Peers[name] = addr
		return nil
	})
	f.SetOutput(io.Discard) // the caller reports errors, once
	f.Usage = func() {}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		f.SetOutput(os.Stdout)
		fmt.Println("usage: kvpiped [--config FILE | --dev] [FLAGS]")
		f.PrintDefaults()
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: kvpiped --help lists the flags", err)
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: kvpiped takes flags alone, see --help", f.Arg(0))
	case o.flags.CA != "" && !o.dev:
		return nil, fmt.Errorf("--ca goes with --dev; otherwise set tls.ca, tls.cert and tls.key in the configuration")
	case o.flags.StateDir != "" && !o.dev:
		return nil, fmt.Errorf("--state-dir goes with --dev; otherwise set socket and admin in the configuration")
	case o.sys != "" && !o.dev:
		return nil, fmt.Errorf("--sys goes with --dev: a daemon in service places its threads by the machine it is on")
	case o.file == "" && !o.dev:
		o.file = defaultFile
	}
	return o, nil
}

// config reads the file, if there is one, and puts the flags on top.
func (o *options) config() (config.Config, error) {
	c := config.Default()
	if o.file != "" {
		var err error
		if c, err = config.Load(o.file); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				name := "" // advice for a file that was named
				if o.file != defaultFile {
					name = "name one that is there with --config, "
				}
				err = fmt.Errorf("%w: %swrite one (packaging/kvpiped.toml is a commented sample), or try \"kvpiped --dev\"", err, name)
			}
			if errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w: user %d, who runs this kvpiped, has to be let read it: packages give it to group kvpipe (chgrp kvpipe, chmod 640)", err, os.Geteuid())
			}
			return c, err
		}
	}
	return daemon.Complete(c, o.flags, o.dev)
}
