package peer

import (
	"io"
	"runtime"
	"testing"
	"time"
)

// TestALargeFrameOnASlowWayIsHeard: while parts of it come its sender is not silent, however long all of it takes; a byte now and then is not enough.
func TestALargeFrameOnASlowWayIsHeard(t *testing.T) {
	const beat = int64(time.Second)
	for name, c := range map[string]struct {
		piece int
		over  bool
	}{"a KiB for each heartbeat": {heardLeast, false}, "a KiB for three": {heardLeast/(silences-1) + 1, false}, "a byte for each": {1, true}} {
		t.Run(name, func(t *testing.T) {
			in, out := io.Pipe()
			ch := &channel{m: &Manager{cfg: Config{Heartbeat: time.Duration(beat)}}, in: newFrames(in)}
			read := make(chan error, 1)
			go func() { _, err := ch.in.next(maxFrame); read <- err }()
			comes := func(b []byte) {
				before := ch.in.came.n.Load()
				if _, err := out.Write(b); err != nil {
					t.Fatal(err)
				}
				for ch.in.came.n.Load() != before+int64(len(b)) {
					runtime.Gosched()
				}
			}
			comes([]byte{0, 0, 16, 0}) // a MiB follows
			over := false
			for i := range int64(20) {
				comes(make([]byte, c.piece))
				if _, silent := ch.silent((i + 1) * beat); silent {
					over = true
				}
			}
			if over != c.over {
				t.Errorf("the channel is over: %v, want %v", over, c.over)
			}
			_ = out.Close()
			if err := <-read; err == nil {
				t.Error("the frame has come")
			}
		})
	}
}
