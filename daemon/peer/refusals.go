package peer

import (
	"context"
	"log/slog"
	"sync"
)

const (
	// maxToldAtOnce is how many refused connections within toldWindow get a line each in the log. The rest are counted.
	maxToldAtOnce = 32
	toldWindow    = int64(10e9)
)

// refusals logs connections that were refused, such that strangers cannot fill the log.
type refusals struct {
	mu     sync.Mutex
	since  int64
	told   int
	silent int
}

// tell logs a refusal, unless too many were logged lately.
func (r *refusals) tell(ctx context.Context, log *slog.Logger, now int64, level slog.Level, attrs ...any) {
	r.mu.Lock()
	if now-r.since >= toldWindow {
		r.since, r.told = now, 0
	}
	r.told++
	untold := r.silent
	if r.told > maxToldAtOnce {
		r.silent++
		r.mu.Unlock()
		return
	}
	r.silent = 0
	r.mu.Unlock()
	if untold > 0 {
		attrs = append(attrs, "refused_before", untold)
	}
	log.Log(ctx, level, "connection refused", attrs...)
}
