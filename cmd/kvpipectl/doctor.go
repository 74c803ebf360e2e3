package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/config"
)

// finding is one thing that doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Answer string `json:"answer"` // "ok", "warning", "problem"
	Text   string `json:"text"`
	Fix    string `json:"fix,omitempty"` // what to do; empty when all is well
}

func fine(check, format string, a ...any) finding {
	return finding{Check: check, Answer: "ok", Text: fmt.Sprintf(format, a...)}
}

func warn(check, fix, format string, a ...any) finding {
	return finding{Check: check, Answer: "warning", Text: fmt.Sprintf(format, a...), Fix: fix}
}

func problem(check, fix, format string, a ...any) finding {
	return finding{Check: check, Answer: "problem", Text: fmt.Sprintf(format, a...), Fix: fix}
}

// doctor examines a node as an engine of the same user and with the same mounts sees it.
type doctor struct {
	socket string   // the engines' socket
	places []string // where the admin socket may be
	root   string   // holds proc and sys
	now    time.Time
}

func (c *ctl) doctor() *cobra.Command {
	d := doctor{root: "/", now: time.Now()}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check for what keeps engines from the daemon or makes it slow, and say how to fix it", Args: noArgs,
		Long: "Check for what keeps engines from the daemon or makes it slow, and say how to fix it. Run it as the user, and inside the container, of the engine; as root it looks at the daemon too.\n" +
			"Exit status: 0 when nothing is broken (warnings included), 1 when something is.",
	}
	cmd.Flags().StringVar(&c.socket, "socket", "", "socket for engines (default $KVPIPE_SOCKET, "+config.Default().Socket+", then that of \"kvpiped --dev\")")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var s *admin.Status
		var peers []admin.Peer
		var nics admin.NICs
		answer := new(admin.Status)
		d.places = c.placesForDoctor()
		client := admin.NewClient(d.places[0], d.places[1:]...)
		err := client.Get(cmd.Context(), "status", nil, answer)
		if err == nil {
			s = answer
			err = client.Get(cmd.Context(), "peers", nil, &peers)
			if client.Get(cmd.Context(), "nics", nil, &nics) != nil {
				nics.State = "" // an older daemon
			}
		}
		var why string
		d.socket, why = c.engineSocket(s)
		found, pid := d.connection()
		found[0].Text += "; " + why
		connected := found[0].Answer != "problem"
		found = append(found, d.daemon(s, err, connected)...)
		if connected {
			found = append(found, d.limits(pid)...)
		}
		found = append(found, d.hugePages()...)
		if s != nil {
			found = append(found, d.gpus(s)...)
			found = append(found, d.certificate(s)...)
			found = append(found, d.nics(s, nics)...)
			found = append(found, d.congestion(s)...)
			found = append(found, d.peers(s, peers)...)
		}
		if c.json {
			if err := c.printJSON(found); err != nil {
				return err
			}
		} else {
			printFindings(c.out, found)
		}
		return broken(found)
	}
	return cmd
}

// printFindings begins a line at its edge for each finding alone, for whoever searches what it prints: their texts may
// have several lines.
func printFindings(w io.Writer, found []finding) {
	for _, f := range found {
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Answer, f.Check, strings.ReplaceAll(f.Text, "\n", "\n         "))
		if f.Fix != "" {
			fmt.Fprintf(w, "         fix: %s\n", strings.ReplaceAll(f.Fix, "\n", "\n              "))
		}
	}
}

// broken returns an error if something keeps engines from working.
func broken(found []finding) error {
	var all, bad []string // a check may have several findings
	for _, f := range found {
		if !slices.Contains(all, f.Check) {
			all = append(all, f.Check)
		}
		if f.Answer == "problem" && !slices.Contains(bad, f.Check) {
			bad = append(bad, f.Check)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("doctor: %d of %d checks found a problem: %s", len(bad), len(all), strings.Join(bad, ", "))
}
