package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

func (c *ctl) nics() *cobra.Command {
	return &cobra.Command{
		Use: "nics", Short: "Network links and RDMA devices, and what data links use of them", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return show(c, cmd.Context(), "nics", nil, printNICs) },
	}
}

func printNICs(w io.Writer, n admin.NICs) {
	t := newTable(w, "NIC", "KIND", "STATE", "SPEED", "MTU", "NUMA", "PCI", "RDMA", "LINKS", "USED", "ADDRESSES")
	for _, x := range n.NICs {
		used := "yes"
		if !x.Used {
			used = "no: " + x.Refused
		}
		t.row(x.Name, x.Kind, upDown(x.Up), speed(x.Mbps), fmt.Sprint(x.MTU), node(x.NUMA), orDash(x.PCI), orDash(x.RDMA), fmt.Sprint(x.Links), used,
			orDash(strings.Join(x.Addresses, ", ")))
	}
	t.flush()
	printRDMA(w, n.RDMA)
	if n.Reason != "" {
		fmt.Fprintf(w, "note: this is not all (%s): %s\n", n.State, n.Reason)
	}
	for _, name := range n.Missing {
		fmt.Fprintf(w, "note: nic_allow names %q, which is not there\n", name)
	}
}

func printRDMA(w io.Writer, all []admin.RDMADevice) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "RDMA", "STATE", "LAYER", "SPEED", "NUMA", "PCI", "NIC", "FIRMWARE", "GID FOR IPV4", "GID FOR IPV6")
	var reasons []string
	for _, d := range all {
		for _, p := range d.Ports {
			name := fmt.Sprintf("%s/%d", d.Name, p.Number)
			chosen := map[string]string{}
			for _, c := range p.Choices {
				chosen[c.Family] = "-"
				if i := slices.IndexFunc(p.GIDs, func(g admin.GID) bool { return g.Index == c.Index }); i >= 0 {
					chosen[c.Family] = fmt.Sprintf("%d: %s", c.Index, p.GIDs[i].GID)
				}
				reasons = append(reasons, fmt.Sprintf("%s to %s peers: %s", name, c.Family, c.Reason))
			}
			t.row(name, p.State, p.LinkLayer, speed(p.Mbps), node(d.NUMA), orDash(d.PCI), orDash(p.NIC), orDash(d.Firmware), orDash(chosen["IPv4"]), orDash(chosen["IPv6"]))
		}
	}
	t.flush()
	for _, r := range reasons {
		fmt.Fprintln(w, " ", r)
	}
}

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func speed(mbps int) string {
	switch {
	case mbps <= 0:
		return "-"
	case mbps < 1000:
		return fmt.Sprintf("%d Mb/s", mbps)
	}
	return fmt.Sprintf("%g Gb/s", float64(mbps)/1000)
}

// over names the NICs that links go over: "ens1, ens2 x3".
func over(links []admin.Stream) string {
	count := map[string]int{}
	var names []string
	for _, s := range links {
		name := cmp.Or(s.NIC, s.Local)
		if count[name]++; count[name] == 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%s x%d", name, n)
		}
	}
	return strings.Join(names, ", ")
}
