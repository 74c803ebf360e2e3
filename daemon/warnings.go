package daemon

import (
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/discovery/nic"
)

// warning is something that somebody should look at, or has chosen (insecure, data_plain).
type warning struct {
	kind string // one of warningKinds
	text string
}

// warningKinds are values of a label. "listen" and "metrics" are for the addresses of these keys at which nobody can
// connect.
var warningKinds = []string{"listen", "metrics", "insecure", "data_plain", "certificate", "state", "nics", "peers"}

// warnings returns those that status shows, with the certificate that it shows.
func (v view) warnings(c *admin.Certificate) (out []warning) {
	out = v.unreachable()
	v.mu.Lock()
	insecure, plain := v.cfg.Insecure, v.cfg.DataPlain
	v.mu.Unlock()
	if insecure {
		out = append(out, warning{"insecure", "insecure: peers are not authenticated (loopback addresses alone)"})
	}
	if plain {
		out = append(out, warning{"data_plain", "data_plain: data links between authenticated peers are not encrypted"})
	}
	if c != nil {
		if c.Problem != "" {
			out = append(out, warning{"certificate", "certificate: " + c.Problem})
		}
		if left := time.Until(c.Until); left > 0 && left < certificateSoon {
			text := fmt.Sprintf("certificate %s ends in %s", c.File, left.Round(time.Hour))
			if c.CA != "" {
				text += fmt.Sprintf(", as that of its CA (%s) does", c.CA)
			}
			out = append(out, warning{"certificate", text})
		}
	}
	if err := v.sessions.Forgetful(); err != nil {
		out = append(out, warning{"state", fmt.Sprintf("sessions cannot be remembered for a restart: %v", err)})
	}
	for _, node := range v.peers.Namesakes() {
		out = append(out, warning{"peers", node})
	}
	return append(out, v.nicWarnings()...)
}

// unreachable says at which of its addresses nobody can connect to this daemon, and why. The kinds are the keys of the
// addresses.
func (d *Daemon) unreachable() (out []warning) {
	for _, e := range d.early {
		if !e.there() {
			out = append(out, warning{e.key, e.String()})
		}
	}
	return append(out, d.closed.problems()...)
}

// certificateSoon is how long before its end a certificate becomes a warning.
const certificateSoon = 14 * 24 * time.Hour

// certificate returns nil if none is configured.
func (v view) certificate() *admin.Certificate {
	if v.identity == nil {
		return nil
	}
	until, err := v.identity.Problem()
	c := &admin.Certificate{File: v.cfg.TLS.Cert, Until: until, CA: v.identity.Outlived()}
	if err != nil {
		c.Problem = err.Error()
	}
	return c
}

// nicWarnings says what keeps data links from their NICs.
func (v view) nicWarnings() (out []warning) {
	warn := func(format string, args ...any) { out = append(out, warning{"nics", fmt.Sprintf(format, args...)}) }
	now, rules := v.nics.watcher.Current(), v.nics.rules.Load()
	if now.State != nic.Complete {
		warn("NICs are not all known (%s): %s", now.State, now.Reason)
	}
	if now.State == nic.Unknown {
		return out
	}
	for _, name := range rules.Missing(now) {
		warn("nic_allow names %q, which is not there", name)
	}
	gid := int(v.nics.gid.Load())
	for _, port := range now.WithoutGID(gid) {
		warn("gid_index = %d: port %s has no such GID", gid, port)
	}
	return out
}
