package local

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

func open(workers int) transporttest.Open { return opener(Config{Workers: workers, Nice: 10}) }

func opener(cfg Config) transporttest.Open {
	return func(t testing.TB) *transporttest.Pair {
		sink := transporttest.NewRecorder()
		cfg.Sink = sink
		tr, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		return &transporttest.Pair{
			Src: tr, Dst: tr, SrcSink: sink, DstSink: sink,
			Close: func() {
				if closed {
					return
				}
				closed = true
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
			},
		}
	}
}

func TestConformance(t *testing.T) {
	t.Run("one worker", func(t *testing.T) { transporttest.Run(t, open(1)) })
	t.Run("three workers", func(t *testing.T) { transporttest.Run(t, open(3)) })
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{Workers: 0}, {Workers: 1, Nice: -1}, {Workers: 1, Nice: 20}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
}

func TestProbe(t *testing.T) {
	p := open(1)(t)
	defer p.Close()
	if r := p.Src.Probe(""); !r.OK {
		t.Errorf("this node: %+v", r)
	}
	if r := p.Src.Probe("other"); r.OK || r.Reason == "" {
		t.Errorf("another node: %+v", r)
	}
}
