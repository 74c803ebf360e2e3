package daemon

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/session"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// limits returns those that apply to all sessions together, by name.
func (v view) limits() []admin.Limit {
	u := v.sessions.Usage()
	return []admin.Limit{
		{Key: "limits.sessions", Used: uint64(u.Sessions), Limit: uint64(u.Limits.Sessions)},
		{Key: "limits.sessions_per_uid", Used: uint64(u.OneUser), Limit: uint64(u.Limits.SessionsPerUID)},
		{Key: "limits.ring_memory", Used: u.Rings, Limit: u.Limits.RingMemory},
		{Key: "limits.total_pinned", Used: u.Pinned, Limit: u.Limits.TotalPinned},
	}
}

// sessionLimits returns those of one session, by name. One is not in the configuration: cq_entries, the session's room
// for completions, which its client chose.
func (v view) sessionLimits(m *transfer.Snapshot, s *session.Info) []admin.Limit {
	all := []admin.Limit{{Key: "limits.session_pinned", Used: s.Pinned, Limit: v.sessions.Usage().Limits.SessionPinned}}
	i, known := slices.BinarySearchFunc(m.Sessions, s.ID, func(x transfer.SessionInfo, id transfer.SessionID) int { return cmp.Compare(x.Session, id) })
	if known {
		ring := uint64(s.Unread) + uint64(m.Sessions[i].Reserved)
		all = append(all, admin.Limit{Key: "cq_entries", Used: min(ring, uint64(s.CQ)), Limit: uint64(s.CQ)}) // refusals have room beyond it
		for _, q := range m.Sessions[i].Quotas {
			limit := q.Limit
			if q.Key == "limits.inflight" {
				limit = min(limit, s.Inflight)
			}
			all = append(all, admin.Limit{Key: q.Key, Used: uint64(q.Used), Limit: uint64(limit)})
		}
	}
	slices.SortFunc(all, func(a, b admin.Limit) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// mostUsed merges the limits of one session into all, which keeps for each limit the use that comes nearest to it. It
// is for metrics, which know no sessions.
func mostUsed(all []admin.Limit, of []admin.Limit) []admin.Limit {
	for _, l := range of {
		i := slices.IndexFunc(all, func(a admin.Limit) bool { return a.Key == l.Key })
		switch {
		case i < 0:
			all = append(all, l)
		case float64(l.Used)*float64(all[i].Limit) > float64(all[i].Used)*float64(l.Limit):
			all[i] = l
		}
	}
	return all
}
