package daemon

import (
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/transfer"
)

// TestDialMaxIsTheLongestPause, also of the machine, which asks for a peer again after up to sixteen times what it is told.
func TestDialMaxIsTheLongestPause(t *testing.T) {
	for most, want := range map[time.Duration]transfer.Time{
		10 * time.Millisecond: 10 * transfer.Millisecond, time.Second: transfer.Second, 5 * time.Second: 3200 * transfer.Millisecond,
	} {
		c := config.Default()
		c.Peers.DialMax = config.Duration(most)
		if m := machineConfig(&c); m.Redial <= 0 || 16*m.Redial != want {
			t.Errorf("dial_max %s: %d ns, want %d", most, 16*m.Redial, want)
		}
	}
}
