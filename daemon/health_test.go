package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvpipe/kvpipe/daemon/driver"
)

// TestHealthOfADriverThatStandsStill: whoever asks waits for no longer than a few seconds, and is told.
func TestHealthOfADriverThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{driver: driver.New(driver.Config{})} // does nothing without Run
		w := httptest.NewRecorder()
		d.health(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", http.NoBody))
		if says := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(says, "the driver does not answer: not within 5s") {
			t.Errorf("%d %q", w.Code, says)
		}
	})
}
