package tcp

import (
	"context"
	"fmt"
)

// Ping looks at the two goroutines of every link, which wait for peers: each has to be at that, or further than it was last time. That
// the locks are to be had shows that nobody keeps them.
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
		// Both are asked, whatever the first says: what counts is the time between two questions.
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
