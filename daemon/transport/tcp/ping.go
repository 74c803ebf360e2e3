package tcp

import (
	"context"
	"fmt"
)

// Ping checks the two goroutines of every link. Each must be waiting for its peer or have advanced since the last Ping.
// By taking the locks, Ping also shows that nobody keeps them.
func (t *Transport) Ping(context.Context) error {
	t.mu.Lock()
	all := make([]*channel, 0, len(t.channels))
	for _, ch := range t.channels {
		all = append(all, ch)
	}
	t.mu.Unlock()
	for _, ch := range all {
		if err := ch.ping(); err != nil {
			return err
		}
	}
	t.lot.mu.Lock()
	defer t.lot.mu.Unlock()
	return nil
}

func (ch *channel) ping() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	var stuck error
	for i, l := range ch.links {
		// Ask both, whatever the first says: each question starts the time that the next one looks at.
		tx, rx := l.tx.Alive(), l.rx.Alive()
		switch {
		case !tx:
			stuck = fmt.Errorf("the sender of link %d to %s does not go on", i, ch.peer)
		case !rx:
			stuck = fmt.Errorf("the receiver of link %d to %s does not go on", i, ch.peer)
		}
	}
	return stuck
}
