package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

func (c *ctl) gpus() *cobra.Command {
	return &cobra.Command{
		Use: "gpus", Short: "The GPUs of this node, and what is wrong with them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(c, cmd.Context(), "gpus", nil, printGPUs)
		},
	}
}

func printGPUs(w io.Writer, g admin.GPUs) {
	if g.State != "ok" {
		fmt.Fprintf(w, "none (%s): %s\n", g.State, g.Reason)
		if g.Fix != "" {
			fmt.Fprintln(w, "fix:", g.Fix)
		}
		return
	}
	fmt.Fprintf(w, "driver %s, CUDA up to %s\n", orDash(g.Driver), orDash(g.CUDA))
	t := newTable(w, "GPU", "NAME", "PCI", "NUMA", "MEMORY", "BAR1", "NVLINKS", "FABRIC", "DMA-BUF", "STATE", "UUID")
	for _, d := range g.Devices {
		t.row(fmt.Sprint(d.Index), orDash(d.Name), orDash(d.PCI), node(d.NUMA), known(d.Memory), known(d.BAR1), links(d.NVLinks), fabric(d.Fabric), yes(d.DMABuf), gpuState(d), orDash(d.UUID))
		for _, i := range d.Instances {
			t.row(fmt.Sprintf("  %d/%d", i.GPU, i.Compute), "MIG "+i.Profile, "", "", known(i.Memory), "", "", "", "", "", i.UUID)
		}
	}
	t.flush()
	for _, d := range g.Devices {
		if d.Problem != "" {
			fmt.Fprintf(w, "GPU %d: %s\n", d.Index, d.Problem)
		}
		if x := d.Xid; x != nil {
			fmt.Fprintf(w, "GPU %d: last of %d errors: Xid %d at %s%s: %s\n", d.Index, x.Count, x.Code, x.When.UTC().Format(time.RFC3339), of(x.Instance), x.Text)
		}
	}
	if g.Reason != "" {
		fmt.Fprintf(w, "note: %s\nfix: %s\n", g.Reason, g.Fix)
	}
	for _, why := range dmaBufReasons(g.Devices) {
		fmt.Fprintln(w, "dma-buf:", why)
	}
}

// dmaBufReasons returns each reason once. Nearly always there is one for all GPUs.
func dmaBufReasons(all []admin.GPU) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, d := range all {
		if !seen[d.WhyDMABuf] {
			seen[d.WhyDMABuf] = true
			out = append(out, d.WhyDMABuf)
		}
	}
	return out
}

func of(instance string) string {
	if instance == "" {
		return ""
	}
	return " of " + instance
}

func gpuState(d admin.GPU) string {
	switch {
	case d.Lost:
		return "lost"
	case d.Problem != "":
		return "unreadable"
	}
	return "ok"
}

func node(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func known(bytes uint64) string {
	if bytes == 0 {
		return "-"
	}
	return size(bytes)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// links says how many NVLinks are up, and their total rate in one direction.
func links(all []admin.NVLink) string {
	if len(all) == 0 {
		return "-"
	}
	up, speed := 0, uint64(0)
	for _, l := range all {
		if l.Active {
			up, speed = up+1, speed+l.Speed
		}
	}
	if speed == 0 {
		return fmt.Sprintf("%d/%d up", up, len(all))
	}
	return fmt.Sprintf("%d/%d up, %.0f GB/s", up, len(all), float64(speed)/1e9)
}

func fabric(f *admin.Fabric) string {
	switch {
	case f == nil:
		return "-"
	case f.Status != "":
		return "failed: " + f.Status
	case f.State != "completed":
		return f.State
	case f.Cluster == "":
		return "this node"
	}
	return fmt.Sprintf("%.8s clique %d", f.Cluster, f.Clique)
}

// gpuLine is what the status command says of GPUs.
func gpuLine(g admin.GPUSummary) string {
	switch {
	case g.State != "ok":
		return fmt.Sprintf("none (%s): %s", g.State, g.Reason)
	case g.Reason != "":
		return fmt.Sprintf("%d, driver %s: %s", g.Count, orDash(g.Driver), g.Reason)
	case g.Lost > 0:
		return fmt.Sprintf("%d, of them %d lost, driver %s", g.Count, g.Lost, orDash(g.Driver))
	}
	return fmt.Sprintf("%d, driver %s", g.Count, orDash(g.Driver))
}
