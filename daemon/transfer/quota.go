package transfer

import "fmt"

// quota is something of which a session may have only so many. For another kind, add a constant here and a row in
// quotas, and call within before more is given; session.used counts.
type quota uint8

const (
	quotaOps quota = iota
	quotaOffers
	quotaItems
	quotaBlockIDs
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
	quotaBlockIDs: {"limits.block_ids", "block ids in what it offers, takes, puts and gets", "wait until some of that has ended, or withdraw offers",
		func(c *Config) int { return c.MaxBlockIDs }},
}

// has is how much of something a session has, including what waits for ranks after a restart.
func (s *session) has(q quota) int {
	n := s.used[q]
	if q == quotaBlockIDs {
		n += s.delayed.ids
	}
	return n
}

// within refuses n more of a kind to a session that would then exceed its limit. A session that exceeds it already may
// go on with what needs none.
func (m *Machine) within(s *session, q quota, n int) Cause {
	x := &quotas[q]
	used, limit := s.has(q), x.limit(&m.cfg)
	if n == 0 || used+n <= limit {
		return Cause{}
	}
	with := ""
	if n > 1 {
		with = fmt.Sprintf(", with these %d", n)
	}
	return because(Quota, "this session has %d %s%s, the limit is %s = %d: %s, or raise that", used, x.what, with, x.key, limit, x.remedy)
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
		all = append(all, QuotaInfo{Key: quotas[q].key, Used: s.has(quota(q)), Limit: quotas[q].limit(&m.cfg)})
	}
	if s.role == Endpoint { // which it shares with the other ends of its engine
		all = append(all, QuotaInfo{Key: "limits.pipes", Used: m.binds[s.engine.key], Limit: m.cfg.MaxPipes})
	}
	return all
}
