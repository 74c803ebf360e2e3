package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/version"
)

func peerQuery(args []string) url.Values {
	q := url.Values{}
	if len(args) > 0 {
		q.Set("peer", args[0])
	}
	return q
}

// keyWait is how long a shell, whose user has pressed a key, waits for a daemon that may stand still.
const keyWait = 500 * time.Millisecond

// completePeer offers the names of known nodes to the shell.
func (c *ctl) completePeer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), keyWait)
	defer cancel()
	var peers []admin.Peer
	if len(args) > 0 || c.client().Get(ctx, "peers", nil, &peers) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, p := range peers {
		names = append(names, p.Node)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *ctl) bench() *cobra.Command {
	var o admin.BenchOptions
	var sizes []string
	cmd := &cobra.Command{
		Use: "bench [PEER]", Short: "Measure what each transport moves from a peer to this node (no PEER: within this node)", Args: onePeer, ValidArgsFunction: c.completePeer,
		Long: "Measure what each transport moves from a peer to this node, or within this node. Ask on the peer for the other direction.",
	}
	cmd.Flags().Float64Var(&o.Seconds, "seconds", 1, "time for each row")
	cmd.Flags().StringSliceVar(&sizes, "sizes", nil, "block sizes, in bytes or such as 64KiB, comma separated (default 4KiB to 1MiB)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, s := range sizes {
			var n config.Size
			if err := n.UnmarshalText([]byte(s)); err != nil {
				return fmt.Errorf("--sizes %q: give numbers of bytes, or such as 64KiB", s)
			}
			o.Sizes = append(o.Sizes, uint64(n))
		}
		if !(o.Seconds > 0) || math.IsInf(o.Seconds, 1) { // JSON has no words for what is not a number
			return fmt.Errorf("--seconds %v: give a number above 0", o.Seconds)
		}
		body, err := c.client().Post(cmd.Context(), "bench", peerQuery(args), o)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		return c.printBench(body)
	}
	return cmd
}

// printBench prints rows as they are measured, or with --json all at the end. It is an error if nothing could be
// measured. So it is if the measurement was broken off: then the last row has no transport, and says why.
func (c *ctl) printBench(body io.Reader) error {
	const form = "%-10s %10s %8v %8v %12s %12s %12s\n"
	if !c.json {
		fmt.Fprintf(c.out, form, "TRANSPORT", "BLOCK", "BLOCKS", "COUNT", "RATE", "P50", "P99")
	}
	rows, measured, broken := []admin.BenchRow{}, false, ""
	for dec := json.NewDecoder(body); broken == ""; {
		var r admin.BenchRow
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the daemon hung up: its log may say why")
		}
		if err != nil {
			r = admin.BenchRow{Error: err.Error()}
		}
		rows, measured = append(rows, r), measured || r.Error == ""
		switch {
		case r.Error != "" && r.Transport == "":
			broken = r.Error
		case c.json:
		case r.Error != "":
			block := "-"
			if r.Bytes > 0 {
				block = size(r.Bytes)
			}
			fmt.Fprintf(c.out, "%-10s %10s  %s\n", r.Transport, block, r.Error)
		default:
			fmt.Fprintf(c.out, form, r.Transport, size(r.Bytes), r.Blocks, r.Count, rate(r.GBps), micros(r.P50), micros(r.P99))
		}
	}
	if c.json {
		if err := c.printJSON(rows); err != nil {
			return err
		}
	}
	if broken != "" {
		return fmt.Errorf("the measurement was broken off: %s", broken)
	}
	if !measured {
		return errors.New("nothing could be measured: each row says why")
	}
	return nil
}

func (c *ctl) drain() *cobra.Command {
	return &cobra.Command{
		Use: "drain", Short: "Refuse new operations and wait until those in flight have ended", Args: noArgs,
		Long: "Refuse new operations and wait until those in flight have ended. The daemon stays drained until it is started again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			began := time.Now()
			body, err := c.client().Post(cmd.Context(), "drain", nil, struct{}{})
			if err != nil {
				return err
			}
			_ = body.Close()
			if c.json {
				return c.printJSON(map[string]any{"drained": true, "seconds": time.Since(began).Seconds()})
			}
			fmt.Fprintln(c.out, "drained: no transfer is in flight; restart the daemon to accept new ones")
			return nil
		},
	}
}

func (c *ctl) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "The versions of kvpipectl and of the daemon", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		v := map[string]string{"kvpipectl": version.String()}
		var s admin.Status
		if err := c.client().Get(cmd.Context(), "status", nil, &s); err == nil {
			v["kvpiped"] = s.Version
		} else {
			v["kvpiped_error"] = err.Error()
		}
		if c.json {
			return c.printJSON(v)
		}
		fmt.Fprintln(c.out, "kvpipectl", v["kvpipectl"])
		if v["kvpiped"] != "" {
			fmt.Fprintln(c.out, "kvpiped  ", v["kvpiped"])
		} else {
			fmt.Fprintln(c.out, "kvpiped   unknown:", v["kvpiped_error"])
		}
		return nil
	}}
}
