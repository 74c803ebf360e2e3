package tcp

import (
	"testing"

	"github.com/kvpipe/kvpipe/daemon/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		links  int
		secure bool
		brief  bool
	}{
		{"plain", Config{CRC: CRCOff}, 2, false, false},
		{"plain, one link, no spin", Config{CRC: CRCOff, Spin: -1}, 1, false, true},
		{"plain, checksums", Config{CRC: CRCOn}, 2, false, true},
		{"plain, all staged, checksums", Config{CRC: CRCOn, Staged: 1 << 30}, 1, false, true},
		{"plain, no threads to wait with", Config{CRC: CRCOff, Spin: -1, Threads: -1}, 2, false, true},
		{"tls", Config{}, 2, true, false},
		{"tls, checksums", Config{CRC: CRCOn}, 1, true, true},
	} {
		t.Run(c.name, func(t *testing.T) { transporttest.Run(t, opener(c.cfg, c.links, c.secure, c.brief)) })
	}
}
