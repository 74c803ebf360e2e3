package session

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/transfer"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// Refusal is an error that a client sees: a reason, and a text that names field, value and limit.
type Refusal transfer.Cause

func (r *Refusal) Error() string { return r.Text }

func refuse(reason transfer.Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error { return refuse(transfer.Invalid, format, args...) }

// causeOf returns what a client is told about err.
func causeOf(err error) transfer.Cause {
	var r *Refusal
	switch {
	case err == nil:
		return transfer.Cause{}
	case errors.As(err, &r):
		return transfer.Cause(*r)
	case scarce(err): // first, as this is not the client's doing: it may ask again, and comes back after a restart
		return transfer.Cause{Reason: transfer.Quota, Text: fmt.Sprintf("%v: the daemon has used up what it may have: %s", err, enough(err))}
	case errors.Is(err, errHidden), errors.Is(err, sys.ErrForbidden): // nor are these, and mending them restarts no engine
		return transfer.Cause{Reason: transfer.Unavailable, Text: err.Error()}
	case errors.Is(err, memory.ErrQuota):
		return transfer.Cause{Reason: transfer.Quota, Text: err.Error()}
	case errors.Is(err, memory.ErrNotFound):
		return transfer.Cause{Reason: transfer.NotFound, Text: err.Error()}
	case errors.Is(err, memory.ErrClosed):
		return transfer.Cause{Reason: transfer.Closed, Text: err.Error()}
	}
	return transfer.Cause{Reason: transfer.Invalid, Text: err.Error()}
}

// lack names what keeps this daemon from doing what a client asks, in words for its log. It returns "" for other
// errors.
func lack(err error) string {
	switch {
	case scarce(err):
		return "no descriptor or no memory"
	case errors.Is(err, errHidden):
		return "no sight of the process"
	case errors.Is(err, sys.ErrForbidden):
		return "a forbidden system call"
	}
	return ""
}

// scarce reports whether something would work if only the system gave the daemon more.
func scarce(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC, sys.ErrUnpolled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// enough says what would give the daemon more.
func enough(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise its limit of open files (LimitNOFILE= of its unit, ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return "raise fs.file-max of this node"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, sys.ErrUnpolled):
		return "raise its memory limits, or fs.epoll.max_user_watches of this node"
	}
	return "raise its memory limits, or vm.max_map_count of this node"
}
