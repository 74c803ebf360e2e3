package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/internal/version"
)

// ctl is what all commands share.
type ctl struct {
	out     io.Writer
	printed *kept // what out writes to
	admin   string
	socket  string // engines' socket, in commands that take it
	json    bool
}

// execute runs a command. If output, help included, could not be written, that is an error too.
func execute(ctx context.Context, out io.Writer, args []string) error {
	printed := &kept{w: out}
	root := newRoot(printed)
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		return err
	}
	return printed.err
}

func newRoot(out *kept) *cobra.Command {
	c := &ctl{printed: out}
	c.out = screen{c.printed, &c.json}
	root := &cobra.Command{
		Use:           "kvpipectl",
		Short:         "Inspect and control a kvpiped daemon",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(c.printed)
	root.SetVersionTemplate("kvpipectl {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %s --help lists the flags", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&c.admin, "admin", "", "admin socket of the daemon (default $KVPIPE_ADMIN, admin.sock beside $KVPIPE_SOCKET, "+config.Default().Admin+", then that of \"kvpiped --dev\")")
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print JSON for programs instead of tables for people")
	root.AddCommand(
		c.status(), c.peers(), c.sessions(), c.regions(), c.offers(), c.transfers(), c.pipes(), c.buffers(), c.gpus(), c.nics(), c.topology(), c.explain(), c.bench(), c.doctor(), c.drain(), c.version(), c.certs(),
	)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() {
			ofItsOwn(cmd)
		}
		if cmd.Name() == "help" {
			cmd.Args = aCommand
		}
	}
	return root
}

// ofItsOwn makes a command that only has subcommands list them, and refuse others. Without this, cobra would not
// report a misspelt one.
func ofItsOwn(cmd *cobra.Command) {
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q: %[2]s --help lists them", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
}

// aCommand refuses arguments of help that are no command. Without this, cobra would not report a misspelt one.
func aCommand(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("unknown command %q for %q: %[2]s --help lists what there is", rest[0], found.CommandPath())
	}
	return nil
}

// onePeer allows at most one argument.
func onePeer(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("unexpected argument %q: %s takes the name of one peer, see --help", args[1], cmd.CommandPath())
	}
	return nil
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: %s takes flags alone, see --help", args[0], cmd.CommandPath())
	}
	return nil
}

// show fetches a resource and prints it: with --json as it came, otherwise by table.
func show[T any](c *ctl, ctx context.Context, what string, query url.Values, table func(io.Writer, T)) error {
	var raw json.RawMessage
	if err := c.client().Get(ctx, what, query, &raw); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(raw)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	table(c.out, v)
	return nil
}

func (c *ctl) printJSON(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
