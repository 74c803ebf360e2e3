package driver

import (
	"strings"
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestOnly: blocks of a session that is confined to a transport leave by that one or not at all.
func TestOnly(t *testing.T) {
	for only, want := range map[string]transfer.Status{"": transfer.Done, "local": transfer.Done, "tcp": transfer.Failed} {
		r := newRig(t, func(c *Config) {
			c.Only = func(s transfer.SessionID) string {
				if s == 1 {
					return only
				}
				return ""
			}
		})
		r.session(1, "p", 1, 4096, 7)
		r.session(2, "c", 1, 4096, 0)
		r.offer(1, "k", 0)
		take := r.take(2, "k", 0)
		n := 2
		if want == transfer.Failed {
			n = 1 // the offer stays
		}
		c := r.completions(n)[take]
		if c.Status != want || want == transfer.Failed && (c.Reason != transfer.Unavailable || !strings.Contains(c.Text, `tcp: not on the allow-list`)) {
			t.Errorf("only %q: %+v", only, c)
		}
	}
}

// TestEndSession: a session that the machine ends is told so.
func TestEndSession(t *testing.T) {
	r := newRig(t, nil)
	r.session(1, "e", 1, 4096, 0)
	r.session(2, "e", 1, 4096, 0) // the same rank of the same instance: the newer one stays
	if err := r.Do(t.Context(), func() {
		if len(r.clients.ended) != 1 || r.clients.ended[0].Session != 1 || r.clients.ended[0].Cause.Reason != transfer.Closed {
			t.Errorf("ended: %+v", r.clients.ended)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
