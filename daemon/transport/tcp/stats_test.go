package tcp

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAPeerWithoutAChannelIsForgotten after a while, and what it had counted stays in the totals.
func TestAPeerWithoutAChannelIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(Config{})
		defer tr.Close()
		count := func(peer string) {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			c := tr.counters(peer)
			c.resent.Add(2)
			c.bad.Add(3)
		}
		knows := func(peer string) bool { _, known := tr.Stats()[peer]; return known }
		for _, peer := range []string{"gone", "back"} {
			tr.ChannelUp(peer, 1)
			count(peer)
			tr.LinksDown(peer, 1)
		}
		time.Sleep(remembered / 2)
		tr.ChannelUp("back", 2)
		if !knows("gone") {
			t.Error("forgotten too soon")
		}
		time.Sleep(remembered)
		if knows("gone") || !knows("back") {
			t.Errorf("known are %v, want back, which has a channel", tr.Stats())
		}
		if len(tr.over) != 1 {
			t.Errorf("last channels are kept of %v", tr.over)
		}
		if resent, malformed := tr.Totals(); resent != 4 || malformed != 6 {
			t.Errorf("%d resent and %d malformed in all, want 4 and 6", resent, malformed)
		}
		tr.ChannelUp("gone", 3)
		count("gone")
		if resent, malformed := tr.Totals(); resent != 6 || malformed != 9 || tr.Stats()["gone"].Resent != 2 {
			t.Errorf("%d resent and %d malformed in all, want 6 and 9; of who came again %+v", resent, malformed, tr.Stats()["gone"])
		}
	})
}
