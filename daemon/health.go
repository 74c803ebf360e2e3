package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// healthTimeout is how long /health waits for the driver: as long as a scrape does, and as clients do before they call
// a daemon silent.
const healthTimeout = 5 * time.Second

// health answers 200 while the driver answers, and 503 while it does not or the daemon drains. It asks nothing else,
// which might wait for others.
func (d *Daemon) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	err := d.driver.Do(ctx, func() {})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not within %v", healthTimeout)
	}
	switch {
	case err != nil:
		http.Error(w, "the driver does not answer: "+err.Error(), http.StatusServiceUnavailable)
	case d.drains():
		http.Error(w, "draining", http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprintln(w, "ok")
	}
}
