package transfer

import "fmt"

var statusNames = [...]string{Done: "done", Failed: "failed", WasCancelled: "cancelled", Released: "released", Quarantined: "quarantined"}

var reasonNames = [...]string{
	OK: "ok", Invalid: "invalid", NotFound: "not_found", Expired: "expired", Denied: "denied", Incompatible: "incompatible", Busy: "busy", Quota: "quota",
	Timeout: "timeout", Cancelled: "cancelled", PeerGone: "peer_gone", Restarted: "restarted", Unavailable: "unavailable", Corrupt: "corrupt", Closed: "closed",
}

// String is the status's word in logs, metrics and the admin interface.
func (s Status) String() string {
	if int(s) < len(statusNames) && statusNames[s] != "" {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint16(s))
}

// String is the reason's word in logs, metrics and the admin interface.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint16(r))
}

// Failures are the reasons with which something fails.
func Failures() (all []Reason) {
	for r := range Reason(len(reasonNames)) {
		if r != OK && r != Cancelled {
			all = append(all, r)
		}
	}
	return all
}

// String is the role's word in logs and the admin interface.
func (r Role) String() string {
	switch r {
	case Worker:
		return "worker"
	case Scheduler:
		return "scheduler"
	case Endpoint:
		return "endpoint"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}
