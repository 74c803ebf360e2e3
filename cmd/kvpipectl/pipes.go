package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

func (c *ctl) pipes() *cobra.Command {
	return &cobra.Command{Use: "pipes", Short: "Pipes, and how full they are", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.showPipes(cmd, "pipe")
	}}
}

func (c *ctl) buffers() *cobra.Command {
	return &cobra.Command{Use: "buffers", Short: "Lookup buffers, and how full they are", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.showPipes(cmd, "buffer")
	}}
}

// showPipes prints the pipes of one kind. With --json it prints all that the daemon lists.
func (c *ctl) showPipes(cmd *cobra.Command, kind string) error {
	return show(c, cmd.Context(), "pipes", nil, func(w io.Writer, all []admin.Pipe) {
		t := newTable(w, "NAME", "STATE", "HOME", "ENGINE", "ENDS", "ITEMS", "BYTES", "CAPACITY", "WAITING", "DELIVERED")
		for _, p := range all {
			if p.Kind == kind {
				t.row(p.Name, p.State, orDash(p.Home), orDash(p.Engine), fmt.Sprint(p.Ends), fmt.Sprint(p.Items), size(p.Bytes), size(p.Capacity), fmt.Sprint(p.Waiting), fmt.Sprint(p.Delivered))
			}
		}
		t.flush()
	})
}
