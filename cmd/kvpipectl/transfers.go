package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

func (c *ctl) transfers() *cobra.Command {
	var watch bool
	var every time.Duration
	cmd := &cobra.Command{Use: "transfers", Short: "Takes and transfers in flight", Args: noArgs,
		Long: "Takes and transfers in flight, each end of this node's in a row of its own. ENGINE and PEER are those of the other end: - while its engine is not known, and for this node.\n" +
			"States of the consumer's end: reaching (the peer is being connected), asking (nothing is granted yet), moving, committing (all bytes are there, and their place is being closed to the transport), ended. " +
			"Of the producer's: parked (it waits for its offer, layouts or progress), moving, aborting, ended. What has ended stays until both ends know of it."}
	cmd.Flags().VarP((*yesNo)(&watch), "watch", "w", "print again and again, until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = "true"
	cmd.Flags().DurationVar(&every, "interval", time.Second, "pause between two prints with --watch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if watch && every <= 0 {
			return fmt.Errorf("--interval %s: give a time above zero", every)
		}
		for {
			if err := show(c, cmd.Context(), "transfers", nil, c.printTransfers(watch)); err != nil {
				if watch && cmd.Context().Err() != nil {
					return nil // an interrupted watch ended as it should
				}
				return err
			}
			if !watch || c.printed.err != nil || !pause(cmd.Context(), every) {
				return nil
			}
		}
	}
	return cmd
}

// yesNo is a flag that takes no number: whoever writes --watch=1 as for watch(1) means a pause.
type yesNo bool

func (y *yesNo) Set(s string) error {
	if s != "true" && s != "false" {
		return errors.New("it takes no value; --interval is for the pause, such as --interval 1s")
	}
	*y = s == "true"
	return nil
}

func (y *yesNo) String() string { return strconv.FormatBool(bool(*y)) }

// Type lets help show the flag as one without a value.
func (*yesNo) Type() string { return "bool" }

// pause returns false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *ctl) printTransfers(watch bool) func(io.Writer, []admin.Transfer) {
	return func(w io.Writer, all []admin.Transfer) {
		// A receiver asks for many items ahead. Those takes have nothing to show yet.
		shown := slices.DeleteFunc(slices.Clone(all), func(x admin.Transfer) bool { return x.State == "seeking" })
		waiting := len(all) - len(shown)
		if watch {
			ended := 0
			for _, x := range shown {
				if x.State == transfer.TransferEnded {
					ended++
				}
			}
			fmt.Fprintf(w, "%s  %d in flight\n", time.Now().Format(time.TimeOnly), len(shown)-ended)
		}
		t := newTable(w, "ID", "END", "STATE", "KEY", "ENGINE", "PEER", "TRANSPORT", "MOVED", "OF", "AGE", "DEADLINE", "TRACE")
		for _, x := range shown {
			t.row(x.ID, x.End, x.State, x.Key, orDash(x.Engine), orDash(x.Peer), orDash(x.Transport), size(x.Moved), size(x.Bytes), age(x.Age), age(x.Deadline), orDash(x.Trace))
		}
		t.flush()
		if waiting > 0 {
			fmt.Fprintf(w, "and %d that wait for an item of a pipe or lookup buffer: kvpipectl pipes, kvpipectl buffers\n", waiting)
		}
		if watch {
			fmt.Fprintln(w)
		}
	}
}
