package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSoon: who asks again before the time is over, even all the time, does not put it off; who asks for less has it sooner.
func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newSoon(), time.Now()
		defer s.Stop()
		s.in(5 * fastWatch)
		for range 3 {
			s.in(fastWatch)
			<-time.After(fastWatch / 4)
		}
		<-s.C
		if took := time.Since(began); took != fastWatch {
			t.Errorf("it came after %v, want %v", took, fastWatch)
		}
		s.due = time.Time{}
		s.in(lazyWatch)
		<-s.C
		if took := time.Since(began); took != fastWatch+lazyWatch {
			t.Errorf("the next came %v after the beginning, want %v", took, fastWatch+lazyWatch)
		}
	})
}
