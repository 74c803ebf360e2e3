package daemon

import (
	"github.com/kvpipe/kvpipe/daemon/config"
)

// Reload reads the configuration again, takes over what can change while running, and names what cannot. A
// configuration that does not load changes nothing.
func (d *Daemon) Reload(load func() (config.Config, error)) {
	d.reloading()
	defer d.reloaded()
	next, err := load()
	if err != nil {
		d.log.Error("reload: the configuration stays as it was", "error", err)
		return
	}
	d.sayPapers()
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
	config.Reload(&d.cfg, next)
	c := &d.cfg
	d.level.Set(logLevel(c.Log.Level))
	d.nics.reload(c)
	d.peers.Reload(c.Peers.Nodes, prefixes(c.Peers.Allow))
	d.sessions.SetLimits(sessionLimits(c))
	mc := machineConfig(c)
	d.driver.Post(func() { d.machine.Reload(mc) })
	d.log.Info("reloaded", "changed", now)
	if len(later) > 0 {
		d.log.Warn("these settings need a restart", "keys", later)
	}
}

// sayPapers logs what is wrong with the certificate files. They are read at each handshake, without a signal, but
// whoever sends one expects an answer.
func (d *Daemon) sayPapers() {
	if d.identity == nil {
		return
	}
	switch until, err := d.identity.Problem(); {
	case err == nil:
	case until.IsZero():
		d.log.Error(noPeers, "error", err)
	default:
		d.log.Error("reload: the certificate stays as it was", "until", until, "error", err)
	}
}
