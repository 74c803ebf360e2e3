package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
	"github.com/kvpipe/kvpipe/internal/sys"
)

// devLife is how long certificates of "kvpiped --dev" last.
const devLife = 365 * 24 * time.Hour

// noPeers says what it means that the certificate files were never good.
const noPeers = "no peer can be reached, and none reaches this node, until its certificate files are good"

// renewAt returns a time a week from now. Development certificates that end before it are issued anew.
func renewAt() time.Time { return time.Now().Add(7 * 24 * time.Hour) }

// CheckFiles checks what the configuration points to: that certificates can be read, fit together, are valid and name
// this node, that the group exists, and that the kernel has the congestion control.
func CheckFiles(c config.Config) error {
	_, err := identity(c)
	_, unknown := congestion(c)
	err = errors.Join(err, unknown)
	if c.Group != "" {
		_, unknown := groupID(c.Group)
		err = errors.Join(err, unknown)
	}
	return err
}

// congestion returns the congestion control of data links; without a configured one, that is the kernel's default. It
// fails if the kernel does not have the configured one.
func congestion(c config.Config) (string, error) {
	name, err := sys.Congestion(c.TCP.Congestion)
	if err != nil && c.TCP.Congestion != "" {
		return "", fmt.Errorf("tcp.congestion: %w", err)
	}
	return name, nil
}

// identity opens the node's certificates. It returns nil when peers are not authenticated, or not listened to.
func identity(c config.Config) (*pki.Identity, error) {
	if c.Insecure || c.TLS == (config.TLS{}) {
		return nil, nil
	}
	return pki.Open(c.TLS.CA, c.TLS.Cert, c.TLS.Key, c.Node)
}
