package session

import (
	"errors"
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/memory"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// Refusal is an error that a client gets to see: a reason and a text that names field, value and limit.
type Refusal transfer.Cause

func (r *Refusal) Error() string { return r.Text }

func refuse(reason transfer.Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error { return refuse(transfer.Invalid, format, args...) }

// causeOf is what a client is told about err.
func causeOf(err error) transfer.Cause {
	var r *Refusal
	switch {
	case err == nil:
		return transfer.Cause{}
	case errors.As(err, &r):
		return transfer.Cause(*r)
	case errors.Is(err, memory.ErrQuota):
		return transfer.Cause{Reason: transfer.Quota, Text: err.Error()}
	case errors.Is(err, memory.ErrNotFound):
		return transfer.Cause{Reason: transfer.NotFound, Text: err.Error()}
	case errors.Is(err, memory.ErrClosed):
		return transfer.Cause{Reason: transfer.Closed, Text: err.Error()}
	}
	return transfer.Cause{Reason: transfer.Invalid, Text: err.Error()}
}
