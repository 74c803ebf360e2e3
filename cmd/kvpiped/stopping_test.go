package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/kvpipe/kvpipe/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestStopping: what a process group is sent once is one wish; who cannot wait says so twice.
func TestStopping(t *testing.T) {
	var s stopping
	now := time.Now()
	for i, c := range []struct {
		by    syscall.Signal
		after time.Duration
		want  bool
	}{
		{syscall.SIGTERM, 0, false},
		{syscall.SIGTERM, time.Millisecond, false},
		{syscall.SIGTERM, echo, false},
		{syscall.SIGINT, time.Millisecond, true},
		{syscall.SIGTERM, echo + 1, true},
	} {
		if got := s.again(c.by, now.Add(c.after)); got != c.want {
			t.Errorf("%d: %s after %s: %v, want %v", i, c.by, c.after, got, c.want)
		}
	}
}
