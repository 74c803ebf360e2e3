package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// mutedError is the error of an attempt whose time ran out at an address that connected and then said nothing.
type mutedError struct {
	addr string
	error
}

func (e *mutedError) Unwrap() error { return e.error }

// reach opens a channel with whoever answers at one of the addresses of a name. Not all of them need be the peer's, or
// of use: a stale one may belong to another host by now, and a path that loses large packets lets it connect and no
// more. The caller checks for a duplicate.
func (m *Manager) reach(ctx context.Context, addrs []string, t target) (*channel, error) {
	var errs []error
	for i, a := range addrs {
		c, connected, err := m.reachAt(ctx, a, len(addrs)-i, t)
		var dup *duplicateError
		if err == nil || errors.Is(err, errSelf) || errors.As(err, &dup) {
			return c, err
		}
		if len(addrs) > 1 && connected {
			err = fmt.Errorf("at %s: %w", a, err)
		}
		if errs = append(errs, err); ctx.Err() != nil {
			err = ofAll(errs)
			if connected {
				err = &mutedError{a, err}
			}
			return nil, err
		}
	}
	return nil, ofAll(errs)
}

// ofAll says why none of several addresses led to the peer. It is final only if it is final at each of them: at another
// address the peer may be back soon.
func ofAll(errs []error) error {
	all, fin := errors.Join(errs...), (*finalError)(nil)
	if slices.ContainsFunc(errs, func(err error) bool { return !errors.As(err, &fin) }) {
		return errors.New(oneLine(all.Error()))
	}
	errors.As(all, &fin)
	why, other := finally(fin.cause.Reason, "%v", all), (*otherError)(nil)
	if !slices.ContainsFunc(errs, func(err error) bool { return !errors.As(err, &other) }) {
		return &otherError{why}
	}
	return why
}

// reachAt is reach for one address; more counts it and those still to come. To connect it has its share of the time,
// one part in more, and for the rest all the time that is left.
func (m *Manager) reachAt(ctx context.Context, addr string, more int, t target) (c *channel, connected bool, err error) {
	until, _ := ctx.Deadline()
	share, cancel := context.WithTimeout(ctx, time.Until(until)/time.Duration(more))
	defer cancel()
	conn, err := dialAny(share, nil, []string{addr})
	if err != nil {
		return nil, false, fmt.Errorf("cannot connect: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past) })
	c, err = m.greet(ctx, conn, t)
	if !stop() && err == nil {
		c.close(c.gone(ctx.Err()), false)
		return nil, true, fmt.Errorf("hello: %w", ctx.Err())
	}
	if err != nil {
		_ = conn.Close()
		return nil, true, err
	}
	return c, true, nil
}

// inTurn puts the addresses in the order of the attempt: it begins after the one that used up the last attempt's time.
func (m *Manager) inTurn(t target, addrs []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pace[t.addr]
	if p == nil {
		return addrs
	}
	i := slices.Index(addrs, p.muted) + 1
	return slices.Concat(addrs[i:], addrs[:i])
}
