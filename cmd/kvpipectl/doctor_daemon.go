package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/internal/version"
)

// daemon reports what the daemon says of itself, or why it says nothing. connected says that it answers engines.
func (d *doctor) daemon(s *admin.Status, err error, connected bool) []finding {
	const check = "daemon"
	if s == nil && connected && errors.Is(err, admin.ErrNoDaemon) {
		return []finding{warn(check, "name its admin socket with --admin or KVPIPE_ADMIN; in a container that does not have it, run doctor on the node, too: it knows of limits, certificates, NICs and peers",
			"it answers engines, but its admin socket is not at %s", strings.Join(d.places, " or "))}
	}
	if s == nil && errors.Is(err, fs.ErrPermission) { // an engine's user need not have access
		return []finding{warn(check, "run doctor as root or the daemon's user, too: it knows of limits, certificates, NICs and peers", "%v", err)}
	}
	if s == nil && connected {
		return []finding{problem(check, "look at its log, or restart it (systemctl restart kvpiped; engines may go on); --admin or KVPIPE_ADMIN names the admin socket where it is another one", "%v", err)}
	}
	if s == nil {
		return []finding{problem(check, "start it; --admin or KVPIPE_ADMIN names the admin socket where it is another one", "%v", err)}
	}
	var found []finding
	switch {
	case s.State != "running":
		found = append(found, problem(check, "restart the daemon to accept new operations (systemctl restart kvpiped; engines may go on)", "node %s is %s: it takes no new operations", s.Node, s.State))
	case s.Version != version.String():
		found = append(found, warn(check, "install both from the same release; a running daemon changes with systemctl restart kvpiped (engines may go on)",
			"node %s runs %s, this kvpipectl is %s", s.Node, s.Version, version.String()))
	default:
		found = append(found, fine(check, "node %s, version %s, up for %s, %d sessions", s.Node, s.Version, age(s.Uptime), s.Counts.Sessions))
	}
	for _, w := range s.Warnings {
		if strings.HasPrefix(w, "certificate") { // has a check of its own
			continue
		}
		found = append(found, warn(check, "see operating.md (docs, /usr/share/doc/kvpiped) if this is not intended", "%s", w))
	}
	if err != nil {
		found = append(found, problem(check, "look at the daemon's log", "it does not list its peers: %v", err))
	}
	return found
}

// listens says whether other nodes can connect to the daemon.
func listens(s *admin.Status) bool { return s.Listen != "" && s.Listen != "off" }

// alone says whether the daemon has no peers and none can connect. A daemon that does not listen may still dial.
func alone(s *admin.Status) bool { return !listens(s) && s.Counts.Peers == 0 }

// gpus: a node without GPUs needs no mending. One whose GPUs cannot be used is only worth a warning, since host
// memory is moved all the same.
func (d *doctor) gpus(s *admin.Status) []finding {
	const check = "gpus"
	g := s.GPUs
	switch {
	case g.State == "ok" && g.Lost > 0:
		return []finding{warn(check, "kvpipectl gpus says which and why; reset or restart, engines on the other GPUs may go on", "%d of %d are lost", g.Lost, g.Count)}
	case g.State == "ok" && g.Reason != "":
		return []finding{warn(check, g.Fix, "%s", g.Reason)}
	case g.State == "ok":
		return []finding{fine(check, "%d, driver %s", g.Count, orDash(g.Driver))}
	case g.State == "driver_mismatch", g.State == "no_permission", g.State == "failed":
		return []finding{warn(check, g.Fix, "%s", g.Reason)}
	}
	return []finding{fine(check, "none: %s", g.Reason)}
}

// soon is how long before its end a certificate should be replaced.
const soon = 30 * 24 * time.Hour

func (d *doctor) certificate(s *admin.Status) []finding {
	const check = "certificate"
	renew := fmt.Sprintf("kvpipectl certs node %s --ca DIR where the CA's key is, then copy %s.crt and %s.key here: the daemon reads them again by itself", s.Node, s.Node, s.Node)
	c := s.Certificate
	file := ""
	switch {
	case c == nil:
	case c.CA != "":
		renew = "kvpipectl certs init --ca ANOTHER; put both CAs into each node's ca.crt, renew all nodes, then take the old one out (operating.md, Certificates)"
		file = fmt.Sprintf("%s with its CA (%s)", c.File, c.CA)
	default:
		file = c.File
	}
	switch {
	case c == nil && alone(s):
		return []finding{fine(check, "none needed: the daemon talks to no peers (listen is off, and it knows none)")}
	case c == nil && !s.Insecure: // peers were named by a reload, which takes no certificates over
		return []finding{problem(check, "name the files under [tls] in kvpiped.toml (kvpipectl certs makes them), and restart kvpiped: a reload does not take them over", "none: this node cannot connect to others, nor they to it")}
	case c == nil:
		return []finding{warn(check, "kvpipectl certs init, then kvpipectl certs node "+s.Node+", and name the files under [tls] in kvpiped.toml", "none: peers are not authenticated (insecure)")}
	case c.Until.IsZero() && c.Problem != "": // nothing could be read since the daemon started
		return []finding{problem(check, "mend that, or "+renew+"; until then this node serves its own engines alone", "%s", c.Problem)}
	case !d.now.Before(c.Until):
		return []finding{problem(check, renew, "%s expired on %s", file, c.Until.Format(time.DateOnly))}
	case c.Problem != "":
		return []finding{problem(check, "mend the file; until then the daemon uses what it read before", "%s: %s", c.File, c.Problem)}
	case c.Until.Sub(d.now) < soon:
		return []finding{warn(check, renew, "%s expires on %s", file, c.Until.Format(time.DateOnly))}
	}
	return []finding{fine(check, "%s is good until %s", c.File, c.Until.Format(time.DateOnly))}
}

// congestion warns of congestion controls that pace. They are made for long distances, and keep data links below what
// a fast network could carry.
func (d *doctor) congestion(s *admin.Status) []finding {
	const check = "congestion control"
	switch {
	case s.Congestion == "" || alone(s):
		return nil // an older daemon, or one without peers
	case strings.HasPrefix(s.Congestion, "bbr"):
		return []finding{warn(check, `congestion = "cubic" under [tcp] in kvpiped.toml, for kvpiped alone; or sysctl -w net.ipv4.tcp_congestion_control=cubic; and restart kvpiped`,
			"data links have %s, which paces what it sends: on a fast network it carries less than cubic", s.Congestion)}
	}
	return []finding{fine(check, "data links have %s", s.Congestion)}
}

func (d *doctor) peers(s *admin.Status, peers []admin.Peer) []finding {
	const check = "peers"
	var found []finding
	var up []string
	for _, p := range peers {
		switch {
		case p.State == "up" && p.Transport == "":
			found = append(found, problem(check, "kvpipectl explain "+p.Node+" says why; add one that both nodes have to transports in kvpiped.toml", "%s is connected, but no transport serves it", p.Node))
		case p.State == "up":
			up = append(up, p.Node)
		case p.Problem != "":
			found = append(found, problem(check, peerFix(p), "%s (%s): %s", p.Node, p.Address, p.Problem))
		default:
			found = append(found, fine(check, "%s (%s) is not connected: that happens on first use", p.Node, p.Address))
		}
	}
	switch {
	case len(up) > 0:
		found = append(found, fine(check, "connected: %s", strings.Join(up, ", ")))
	case len(peers) == 0 && listens(s):
		found = append(found, fine(check, "none are configured or connected: name them under [peers.nodes], or allow address hints with peers.allow"))
	}
	return found
}

func peerFix(p admin.Peer) string {
	switch text := strings.ToLower(p.Problem); {
	case strings.Contains(text, "this daemon has no certificate"), strings.Contains(text, "this daemon's certificate"):
		return "mend this node's certificate: see certificate, above"
	case strings.Contains(text, "of the peer protocol"):
		return "upgrade the older of the two daemons: kvpipectl version on both nodes shows which"
	case strings.Contains(text, "connection refused"):
		return "start kvpiped on " + p.Node + ", and see that it listens on " + p.Address + " (kvpipectl status there)"
	case strings.Contains(text, "no such host"), strings.Contains(text, "lookup"), strings.Contains(text, "answers there"):
		return "mend the address of " + p.Node + " under [peers.nodes] in kvpiped.toml"
	case strings.Contains(text, "the peer has no certificate"):
		return "mend the certificate of " + p.Node + ": kvpipectl doctor there says what is wrong with it"
	case strings.Contains(text, "two nodes are called"), strings.Contains(text, "two daemons have its name"):
		return "give one of the two another name (node in its kvpiped.toml), and a certificate of that name (kvpipectl certs node)"
	case strings.Contains(text, "certificate"), strings.Contains(text, "no tls there"):
		return "both nodes need certificates of the same CA: compare ca.crt on both, and run kvpipectl doctor on " + p.Node
	case strings.Contains(text, "timeout"), strings.Contains(text, "unreachable"), strings.Contains(text, "no route"):
		return "open TCP to " + p.Address + " from here (firewall, network policy), and see that " + p.Node + " is up"
	}
	return "run kvpipectl doctor on " + p.Node + ", and look at both daemons' logs"
}
