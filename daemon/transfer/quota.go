package transfer

// quota is something of which a session may have only so many. Another kind is a constant here, a row in quotas, and a call of within
// before one more is had; session.used counts.
type quota uint8

const (
	quotaOps quota = iota
	quotaOffers
	quotaItems
	numQuotas
)

// quotas say what is counted, where its limit stands in the configuration, and what a client can do about it.
var quotas = [numQuotas]struct {
	key, what, remedy string
	limit             func(*Config) int
}{
	quotaOps:    {"limits.inflight", "operations that are not released", "wait for some of them", func(c *Config) int { return c.MaxOps }},
	quotaItems:  {"limits.items", "items in its pipe or lookup buffer", "wait until some are received", func(c *Config) int { return c.MaxItems }},
	quotaOffers: {"limits.offers", "offers", "withdraw some, or wait until they are taken", func(c *Config) int { return c.MaxOffers }},
}

// within refuses one more of a kind to a session that has as many as it may.
func (m *Machine) within(s *session, q quota) Cause {
	x := &quotas[q]
	if limit := x.limit(&m.cfg); s.used[q] >= limit {
		return because(Quota, "this session has %d %s, the limit is %s = %d: %s, or raise that", s.used[q], x.what, x.key, limit, x.remedy)
	}
	return Cause{}
}

// QuotaInfo is how much of a limit a session uses.
type QuotaInfo struct {
	Key         string // of the configuration
	Used, Limit int
}

func (m *Machine) quotasOf(s *session) []QuotaInfo {
	all := make([]QuotaInfo, 0, numQuotas+1)
	for q := range quotas {
		if q := quota(q); q == quotaItems && s.role != Endpoint || q == quotaOffers && s.role == Endpoint {
			continue
		}
		all = append(all, QuotaInfo{Key: quotas[q].key, Used: s.used[q], Limit: quotas[q].limit(&m.cfg)})
	}
	if s.role == Endpoint { // which it shares with the other ends of its engine
		all = append(all, QuotaInfo{Key: "limits.pipes", Used: m.binds[s.engine.key], Limit: m.cfg.MaxPipes})
	}
	return all
}
