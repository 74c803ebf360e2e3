package daemon

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/kvpipe/kvpipe/internal/damper"
)

// acceptAgain is the pause after a connection that could not be accepted.
const acceptAgain = 100 * time.Millisecond

// lasting is a listener for a server of net/http. Such a server, and the daemon with it, would end when a connection
// cannot be accepted for want of memory. Accept of lasting tries again until it is closed.
type lasting struct {
	net.Listener
	key  string
	log  *slog.Logger
	told damper.Damper
}

func (d *Daemon) lasting(key string, l net.Listener) *lasting {
	return &lasting{Listener: l, key: key, log: d.log}
}

func (l *lasting) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if l.told.Due() {
			l.log.Warn("connections cannot be accepted", "key", l.key, "error", err)
		}
		time.Sleep(acceptAgain) // a stop waits this out
	}
}
