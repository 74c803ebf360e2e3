package peer

import (
	"errors"
	"fmt"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// finalError will not go away by trying again: somebody has to change something.
type finalError struct{ cause transfer.Cause }

func (e *finalError) Error() string { return e.cause.Text }

func final(r transfer.Reason, format string, args ...any) error {
	return &finalError{transfer.Cause{Reason: r, Text: fmt.Sprintf(format, args...)}}
}

// duplicateError: the other side keeps a channel that one of us opened at the same time.
type duplicateError struct{ node string }

func (e *duplicateError) Error() string {
	return fmt.Sprintf("node %q keeps the channel that was opened at the same time", e.node)
}

func (e *duplicateError) nodeOr(node string) string {
	if e == nil || e.node == "" {
		return node
	}
	return e.node
}

func causeError(c transfer.Cause) error { return &finalError{c} }

// asCause keeps the reason of an error that has one; others mean that the peer cannot be reached.
func asCause(err error, prefix string) transfer.Cause {
	var f *finalError
	if errors.As(err, &f) {
		return transfer.Cause{Reason: f.cause.Reason, Text: prefix + f.cause.Text}
	}
	return transfer.Cause{Reason: transfer.PeerGone, Text: prefix + err.Error()}
}
