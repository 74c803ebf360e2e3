package sys

import (
	"runtime"
	"slices"
	"testing"
)

// onThread runs fn on a thread of its own, which ends with it.
func onThread(fn func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread is changed
		fn()
	}()
	<-ended
}

func TestNiceIsPerThread(t *testing.T) {
	onThread(func() {
		before, err := ThreadNice()
		if err != nil {
			t.Error(err)
			return
		}
		if err := SetThreadNice(min(before+5, 19)); err != nil {
			t.Error(err)
		}
		if got, err := ThreadNice(); err != nil || got != min(before+5, 19) {
			t.Errorf("niceness %d, %v; want %d", got, err, before+5)
		}
		onThread(func() {
			if err := SetThreadNice(19); err != nil {
				t.Error(err)
			}
		})
		if got, err := ThreadNice(); err != nil || got != min(before+5, 19) {
			t.Errorf("another thread changed this one's niceness to %d, %v", got, err)
		}
	})
}

func TestAffinity(t *testing.T) {
	onThread(func() {
		all, err := ThreadAffinity()
		if err != nil || len(all) == 0 {
			t.Errorf("cpus %v, %v", all, err)
			return
		}
		last := all[len(all)-1:]
		if err := SetThreadAffinity(last); err != nil {
			t.Error(err)
		}
		if got, err := ThreadAffinity(); err != nil || !slices.Equal(got, last) {
			t.Errorf("cpus %v, %v; want %v", got, err, last)
		}
		for _, bad := range [][]int{nil, {-1}, {1 << 20}} {
			if err := SetThreadAffinity(bad); err == nil {
				t.Errorf("affinity to cpus %v was set", bad)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	for name, get := range map[string]func() (Limit, error){"memlock": MemlockLimit, "nofile": NofileLimit} {
		l, err := get()
		if err != nil || l.Cur > l.Max || l.Max == 0 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	now, err := MemlockLimit()
	noErr(t, err)
	same, err := RaiseMemlock(now.Cur)
	noErr(t, err)
	if same != now {
		t.Errorf("raising to what is there changed %+v to %+v", now, same)
	}
}
