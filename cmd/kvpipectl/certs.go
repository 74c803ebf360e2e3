package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

const (
	day     = 24 * time.Hour
	maxDays = 36500 // 100 years; a Duration holds at most 292
)

// life is the duration that --days stands for.
func life(days int) (time.Duration, error) {
	if days < 1 || days > maxDays {
		return 0, fmt.Errorf("--days %d: give 1 to %d", days, maxDays)
	}
	return time.Duration(days) * day, nil
}

// certs makes the files by which daemons authenticate each other. It needs no daemon.
func (c *ctl) certs() *cobra.Command {
	cmd := &cobra.Command{Use: "certs", Short: "Make a CA and node certificates"}
	cmd.AddCommand(c.certsInit(), c.certsNode())
	return cmd
}

// made names the files that were made, for --json.
type made struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func (c *ctl) certsInit() *cobra.Command {
	var dir, name string
	var days int
	cmd := &cobra.Command{
		Use: "init", Short: "Make the cluster's CA", Args: noArgs,
		Long: "Make the cluster's CA: ca.crt, which every node gets, and ca.key, which signs node certificates and belongs on none of them.",
		RunE: func(*cobra.Command, []string) error {
			valid, err := life(days)
			if err == nil {
				err = pki.Init(dir, name, valid)
			}
			if err != nil {
				return err
			}
			m := made{filepath.Join(dir, pki.CAFile), filepath.Join(dir, pki.CAKeyFile)}
			if c.json {
				return c.printJSON(m)
			}
			fmt.Fprintf(c.out, "made %s and %s\nnext: kvpipectl certs node NAME --ca %s, once for each node\n", m.Cert, m.Key, dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "ca", "kvpipe-ca", "directory of the CA")
	cmd.Flags().StringVar(&name, "name", "kvpipe CA", "name in the CA's certificate, before the beginning of its key's hash")
	cmd.Flags().IntVar(&days, "days", 3650, "how long it is valid")
	return cmd
}

func (c *ctl) certsNode() *cobra.Command {
	var dir, to string
	var hosts []string
	var days int
	cmd := &cobra.Command{
		Use: "node NAME", Short: "Make a node's certificate and key",
		Long: "Make NAME.crt and NAME.key, signed by the CA. NAME is the node's name in its configuration. A running daemon takes new files over by itself.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("certs node: %d names: give the name of one node, as in its configuration", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			valid, err := life(days)
			if err != nil {
				return err
			}
			if to == "" {
				to = dir
			}
			err = pki.IssueNode(dir, to, args[0], hosts, valid)
			if !exists(filepath.Join(dir, pki.CAFile)) && errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: make a CA first (kvpipectl certs init), or name its directory with --ca", err)
			}
			if err != nil {
				return err
			}
			cert, key := pki.NodeFiles(to, args[0])
			if c.json {
				return c.printJSON(made{cert, key})
			}
			fmt.Fprintf(c.out, "made %s and %s%s\nnext: copy them and %s to that node's /etc/kvpipe, the key readable for the daemon's user alone; in its kvpiped.toml:\n\n"+
				"  node = %q\n  [tls]\n  ca = %q\n  cert = %q\n  key = %q\n",
				cert, key, endsWithCA(dir, cert), filepath.Join(dir, pki.CAFile), args[0], "/etc/kvpipe/"+pki.CAFile, "/etc/kvpipe/"+filepath.Base(cert), "/etc/kvpipe/"+filepath.Base(key))
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "ca", "kvpipe-ca", "directory of the CA")
	cmd.Flags().StringVar(&to, "out", "", "directory for the files (default: that of the CA)")
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "further names and addresses of the node")
	cmd.Flags().IntVar(&days, "days", 365, "how long it is valid")
	return cmd
}

// endsWithCA returns a note if a certificate ends together with the CA in dir, which cannot sign for longer;
// otherwise "".
func endsWithCA(dir, cert string) string {
	cas, err := pki.ReadCertificates(filepath.Join(dir, pki.CAFile))
	if err != nil {
		return ""
	}
	made, err := pki.ReadCertificates(cert)
	if err != nil || !made[0].NotAfter.Equal(cas[0].NotAfter) {
		return ""
	}
	return fmt.Sprintf(", valid until %s: the CA ends then", made[0].NotAfter.Format(time.DateOnly))
}
