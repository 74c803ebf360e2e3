package daemon

import (
	"github.com/kvpipe/kvpipe/daemon/config"
)

// Reload takes over what can change while running and names what cannot. A file that does not check changes nothing.
func (d *Daemon) Reload(next config.Config, err error) {
	if err != nil {
		d.log.Error("reload: the configuration stays as it was", "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var now, later []string
	for _, key := range config.Changed(d.cfg, next) {
		if config.Reloadable[key] {
			now = append(now, key)
		} else {
			later = append(later, key)
		}
	}
	d.level.Set(logLevel(next.Log.Level))
	d.peers.Reload(next.Peers.Nodes, prefixes(next.Peers.Allow))
	d.sessions.SetLimits(sessionLimits(&next))
	offers := machineConfig(&next, d.incarnation)
	d.driver.Post(func() { d.machine.Reload(offers) })
	d.cfg.Log.Level, d.cfg.Peers.Nodes, d.cfg.Peers.Allow = next.Log.Level, next.Peers.Nodes, next.Peers.Allow
	d.cfg.Offers, d.cfg.Limits = next.Offers, keepLimits(d.cfg.Limits, next.Limits)
	d.log.Info("reloaded", "changed", now)
	if len(later) > 0 {
		d.log.Warn("these settings need a restart", "keys", later)
	}
}

// keepLimits takes the reloadable limits from next.
func keepLimits(cur, next config.Limits) config.Limits {
	next.Inflight, next.Offers = cur.Inflight, cur.Offers
	return next
}
