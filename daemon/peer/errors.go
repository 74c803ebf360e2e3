package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// finalError is an error that trying again will not remove: somebody has to change something.
type finalError struct{ cause transfer.Cause }

func (e *finalError) Error() string { return e.cause.Text }

func final(r transfer.Reason, format string, args ...any) error { return finally(r, format, args...) }

func finally(r transfer.Reason, format string, args ...any) *finalError {
	return &finalError{transfer.Cause{Reason: r, Text: oneLine(fmt.Sprintf(format, args...))}}
}

// oneLine is for errors that have a line for each of several files or addresses. Clients are told of it, and have one
// line for it.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// malformedError is about something that no honest peer sends. It ends the connection and is counted.
type malformedError struct{ text string }

func (e *malformedError) Error() string { return e.text }

func malformed(format string, args ...any) error {
	return &malformedError{fmt.Sprintf(format, args...)}
}

func isMalformed(err error) bool {
	var bad *malformedError
	return errors.As(err, &bad)
}

// duplicateError says that a channel with that node is open already, or was opened by the node at the same time. by is
// the node that found out, "" for this one.
type duplicateError struct{ node, by string }

func (e *duplicateError) Error() string {
	return fmt.Sprintf("node %q has a channel with this one already", e.node)
}

// peerError is an error of a connection whose other side had proved which node it is.
type peerError struct {
	node string
	error
}

func (e *peerError) Unwrap() error { return e.error }

// errSelf says that the address leads to this very daemon.
var errSelf = errors.New("that is this node itself")

// asCause keeps the reason of an error that has one. Any other error means that the peer cannot be reached.
func asCause(err error, prefix string) transfer.Cause {
	var f *finalError
	if errors.As(err, &f) {
		return transfer.Cause{Reason: f.cause.Reason, Text: prefix + f.cause.Text}
	}
	return transfer.Cause{Reason: transfer.PeerGone, Text: prefix + err.Error()}
}

// tlsError makes an error final if it says that the two sides do not trust each other.
func tlsError(what string, err error) error {
	var untrusted *pki.UntrustedError
	var plain tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &untrusted):
		return final(transfer.Denied, "%s: %v", what, err)
	case errors.As(err, &plain):
		return final(transfer.Denied, "%s: no TLS there (%v): is it a kvpiped, and does it run insecure?", what, err)
	case errors.As(err, &op) && op.Op == "remote error" && op.Err.Error() == tls.AlertError(alertInternalError).Error():
		return final(transfer.Unavailable, "%s: the peer has no certificate that it could show; its log says why (%v)", what, op.Err)
	case errors.As(err, &op) && op.Op == "remote error":
		return final(transfer.Denied, "%s: the peer refuses this node's certificate, or runs insecure; its log says more (%v)", what, op.Err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// gone says whether the other side just went away, which is no news when nobody had met it yet.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}
