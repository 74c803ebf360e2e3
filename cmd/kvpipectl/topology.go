package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/discovery/topology"
)

func (c *ctl) topology() *cobra.Command {
	var svg string
	cmd := &cobra.Command{
		Use: "topology", Short: "How GPUs, NICs and memory hang together, and which threads run where", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if svg != "" {
				return c.draw(cmd, svg)
			}
			return show(c, cmd.Context(), "topology", nil, printTopology)
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "draw it in `FILE` (- is standard output)")
	return cmd
}

// draw writes an SVG.
func (c *ctl) draw(cmd *cobra.Command, file string) error {
	if c.json {
		return errors.New("--svg and --json exclude each other")
	}
	var t admin.Topology
	if err := c.client().Get(cmd.Context(), "topology", nil, &t); err != nil {
		return err
	}
	var s admin.Status
	if err := c.client().Get(cmd.Context(), "status", nil, &s); err != nil {
		return err
	}
	var out strings.Builder
	if err := hardware(&t).SVG(&out, s.Node); err != nil {
		return err
	}
	if file == "-" {
		_, err := io.WriteString(c.out, out.String())
		return err
	}
	return os.WriteFile(file, []byte(out.String()), 0o644)
}

// hardware returns the part of the answer that is drawn. Entries that the answer lacks count as not known.
func hardware(t *admin.Topology) *topology.Topology {
	n := len(t.Devices)
	return &topology.Topology{Nodes: t.Nodes, Devices: t.Devices, Links: squared(t.Links, n, n), Memory: squared(t.Memory, n, len(t.Nodes))}
}

func squared(in [][]topology.Word, rows, columns int) [][]topology.Word {
	out := make([][]topology.Word, rows)
	for i := range out {
		if out[i] = make([]topology.Word, columns); i < len(in) {
			copy(out[i], in[i])
		}
	}
	return out
}

func printTopology(w io.Writer, a admin.Topology) {
	if err := hardware(&a).Matrix(w); err != nil {
		return // an error of w; whoever prints the rest meets it too
	}
	p := &a.Placement
	if !p.Active {
		fmt.Fprintf(w, "\nPlacement: off: %s\n", orDash(p.Reason))
	} else {
		fmt.Fprint(w, "\nPlacement: copies and streams run on the NUMA node of their memory\n\n")
		t := newTable(w, "NODE", "CPUS", "THREADS", "SLICES", "MOVED")
		for _, n := range p.Nodes {
			cpus := n.CPUs
			if !n.Own {
				cpus += " (none of its own may be used)"
			}
			t.row(fmt.Sprint(n.Node), cpus, fmt.Sprint(n.Threads), fmt.Sprint(n.Slices), size(n.Bytes))
		}
		t.flush()
	}
	if len(p.Regions) > 0 {
		fmt.Fprintln(w)
	}
	for _, r := range p.Regions {
		fmt.Fprintf(w, "  region %s (%s): %s%s\n", r.Region, r.Engine, lies(r.Nodes), near(r.Nodes, p))
	}
}

// lies says on which NUMA nodes memory lies.
func lies(on []admin.Share) string {
	switch len(on) {
	case 0:
		return "node not known"
	case 1:
		return fmt.Sprintf("node %d", on[0].Node)
	}
	all := 0
	for _, s := range on {
		all += s.Pages
	}
	var parts []string
	for _, s := range on {
		parts = append(parts, fmt.Sprintf("%d (%d %%)", s.Node, (200*s.Pages+all)/(2*all)))
	}
	return "nodes " + strings.Join(parts, ", ")
}

// near says how many threads copy to memory that lies there.
func near(on []admin.Share, p *admin.Placement) string {
	if !p.Active || len(on) != 1 {
		return ""
	}
	for _, n := range p.Nodes {
		if n.Node == on[0].Node {
			return fmt.Sprintf(", %d threads there now", n.Threads)
		}
	}
	return ", which has no CPUs: copies run on the nearest that has"
}
