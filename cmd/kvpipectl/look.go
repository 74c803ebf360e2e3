package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

func (c *ctl) status() *cobra.Command {
	return &cobra.Command{Use: "status", Short: "The daemon in a few lines", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return show(c, cmd.Context(), "status", nil, printStatus)
	}}
}

func printStatus(w io.Writer, s admin.Status) {
	t := newTable(w)
	t.row("node", s.Node)
	t.row("state", fmt.Sprintf("%s, up for %s", s.State, age(s.Uptime)))
	t.row("version", s.Version)
	t.row("incarnation", fmt.Sprintf("%s (epoch %d)", s.Incarnation, s.Epoch))
	t.row("socket", s.Socket)
	t.row("peers on", fmt.Sprintf("%s, advertised as %s", orOff(s.Listen), orOff(s.Advertise)))
	t.row("metrics on", orOff(s.Metrics))
	t.row("transports", strings.Join(s.Transports, ", "))
	t.row("poll mode", s.PollMode)
	t.row("placement", orDash(s.Placement))
	t.row("congestion", orDash(s.Congestion))
	if s.Certificate != nil {
		t.row("certificate", certificate(s.Certificate))
	}
	memory := fmt.Sprintf("%s registered, %s moved", size(s.Pinned), size(s.Moved))
	if s.Orphaned > 0 {
		memory += fmt.Sprintf(", %s of ended sessions", size(s.Orphaned))
	}
	t.row("memory", memory)
	t.row("gpus", gpuLine(s.GPUs))
	t.row("nics", fmt.Sprintf("%d for data links", s.NICs))
	t.row("counts", counts(s.Counts))
	var limits []string
	for _, l := range s.Limits {
		limits = append(limits, used(l))
	}
	t.row("limits", strings.Join(limits, ", "))
	for _, x := range s.Warnings {
		t.row("warning", x)
	}
	t.flush()
}

// counts lists the numbers under their names in the JSON.
func counts(c admin.Counts) string {
	text, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`"`, "", ":", " ", ",", ", ", "{", "", "}", "").Replace(string(text))
}

func certificate(c *admin.Certificate) string {
	if c.Until.IsZero() {
		return fmt.Sprintf("%s, not usable: %s", c.File, c.Problem)
	}
	return fmt.Sprintf("%s, until %s", c.File, c.Until.Format("2006-01-02"))
}

func (c *ctl) peers() *cobra.Command {
	return &cobra.Command{Use: "peers", Short: "Other nodes that are known or connected", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return show(c, cmd.Context(), "peers", nil, func(w io.Writer, all []admin.Peer) {
			t := newTable(w, "NODE", "STATE", "ADDRESS", "TRANSPORT", "IN", "OUT", "RTT", "LINKS", "OVER", "SECURE", "SINCE", "PROBLEM")
			for _, p := range all {
				if p.State == "down" && p.Problem == "" { // nothing is the matter with it
					p.State, p.Problem = "idle", "none: connected on first use"
				}
				if p.State != "up" {
					t.row(p.Node, p.State, p.Address, "-", "-", "-", "-", "-", "-", "-", "-", orDash(p.Problem))
					continue
				}
				t.row(p.Node, p.State, p.Address, orDash(p.Transport), rate(p.GBpsIn), rate(p.GBpsOut), short(p.RTT), fmt.Sprint(p.Links), orDash(over(p.Streams)), secure(&p), age(p.Age), orDash(p.Problem))
			}
			t.flush()
		})
	}}
}

// secure says which part of a channel is encrypted. An older daemon gives no reason.
func secure(p *admin.Peer) string {
	switch {
	case !p.Secure:
		return "no (insecure)"
	case p.DataPlain:
		return fmt.Sprintf("control (%s)", cmp.Or(p.WhyPlain, "data_plain"))
	}
	return "yes"
}

func (c *ctl) sessions() *cobra.Command {
	return &cobra.Command{Use: "sessions", Short: "Connected sessions of engines", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return show(c, cmd.Context(), "sessions", nil, func(w io.Writer, all []admin.Session) {
			t := newTable(w, "ENGINE", "ROLE", "RANK", "PID", "UID", "REGIONS", "MEMORY", "OPEN", "NEAREST LIMIT", "SUBMITTED", "COMPLETED", "AGE", "INSTANCE", "SESSION")
			for _, s := range all {
				rank := "-"
				if s.Rank != nil {
					rank = fmt.Sprint(*s.Rank)
				}
				t.row(s.Engine, s.Role, rank, fmt.Sprint(s.PID), fmt.Sprint(s.UID), fmt.Sprint(s.Regions), size(s.Pinned), fmt.Sprint(s.Operations), nearest(s.Limits),
					fmt.Sprint(s.Submitted), fmt.Sprint(s.Completed), age(s.Age), orDash(s.Instance), s.ID)
			}
			t.flush()
		})
	}}
}

// used shows a limit and how much of it is used.
func used(l admin.Limit) string {
	show := func(n uint64) string { return fmt.Sprint(n) }
	if strings.HasSuffix(l.Key, "_pinned") || l.Key == "limits.ring_memory" {
		show = size
	}
	return fmt.Sprintf("%s %s of %s", strings.TrimPrefix(l.Key, "limits."), show(l.Used), show(l.Limit))
}

// nearest shows the limit that is used up most.
func nearest(all []admin.Limit) string {
	if len(all) == 0 {
		return "-"
	}
	return used(slices.MaxFunc(all, func(a, b admin.Limit) int {
		return cmp.Compare(float64(a.Used)/float64(max(a.Limit, 1)), float64(b.Used)/float64(max(b.Limit, 1)))
	}))
}

func (c *ctl) regions() *cobra.Command {
	return &cobra.Command{Use: "regions", Short: "Registered memory", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return show(c, cmd.Context(), "regions", nil, func(w io.Writer, all []admin.Region) {
			t := newTable(w, "ENGINE", "SESSION", "REGION", "KIND", "SIZE", "NUMA")
			for _, r := range all {
				kind := r.Kind
				if r.Invalid {
					kind += ", invalid"
				}
				t.row(r.Engine, r.Session, r.ID, kind, size(r.Bytes), lies(r.Nodes))
			}
			t.flush()
		})
	}}
}

func (c *ctl) offers() *cobra.Command {
	return &cobra.Command{Use: "offers", Short: "Offers that can be taken", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return show(c, cmd.Context(), "offers", nil, func(w io.Writer, all []admin.Offer) {
			t := newTable(w, "KEY", "ENGINE", "STATE", "TOKENS", "BLOCKS", "CONSUMED", "LEASE", "AGE", "TRACE")
			for _, o := range all {
				t.row(o.Key, o.Engine, o.State, fmt.Sprint(o.Tokens), fmt.Sprint(o.Blocks), fmt.Sprintf("%d/%d", o.Consumed, o.Consumers), age(o.Lease), age(o.Age), orDash(o.Trace))
			}
			t.flush()
		})
	}}
}

func (c *ctl) explain() *cobra.Command {
	return &cobra.Command{
		Use: "explain [PEER]", Short: "Which transport serves a peer, why not each better one, and its measured rates", Args: onePeer,
		ValidArgsFunction: c.completePeer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(c, cmd.Context(), "explain", peerQuery(args), printExplain)
		},
	}
}

// there names the other end of a link.
func there(s admin.Stream) string {
	if s.PeerNIC == "" {
		return s.Remote
	}
	return fmt.Sprintf("%s (%s)", s.Remote, s.PeerNIC)
}

func printExplain(w io.Writer, e admin.Explain) {
	chosen := "no transport"
	switch {
	case e.Transport == "" && slices.ContainsFunc(e.Choices, func(x admin.ExplainTried) bool { return x.Answer == "idle" }):
		chosen = fmt.Sprintf("idle, not connected: the first hand-over or \"kvpipectl bench %s\" connects", e.Peer)
	case e.Transport != "":
		chosen = e.Transport
		if e.GBps > 0 {
			chosen += fmt.Sprintf(", %s measured", rates(e.GBpsIn, e.GBpsOut))
		}
	}
	fmt.Fprintf(w, "%s: %s\n", e.Peer, chosen)
	t := newTable(w)
	for _, x := range e.Choices {
		t.row("  "+x.Transport, x.Answer, x.Reason)
	}
	t.flush()
	for _, s := range e.Streams {
		fmt.Fprintf(w, "  link %d over %s: %s to %s\n", s.Index, cmp.Or(s.NIC, "a NIC that is not known"), s.Local, there(s))
	}
	for _, n := range e.Notes {
		fmt.Fprintln(w, "  note:", n)
	}
}
