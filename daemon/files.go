package daemon

import (
	"errors"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
	"github.com/kvpipe/kvpipe/daemon/peer/pki"
)

// devLife is how long certificates of "kvpiped --dev" last.
const devLife = 365 * 24 * time.Hour

// renewAt: development certificates with less than a week left are issued anew.
func renewAt() time.Time { return time.Now().Add(7 * 24 * time.Hour) }

// CheckFiles checks what the configuration points to: certificates that can be read, fit together, are valid and name this node, and a
// group that exists.
func CheckFiles(c config.Config) error {
	_, err := identity(c)
	if c.Group != "" {
		_, unknown := groupID(c.Group)
		err = errors.Join(err, unknown)
	}
	return err
}

// identity opens the node's certificates; nil when peers are not authenticated or not listened to.
func identity(c config.Config) (*pki.Identity, error) {
	if c.Insecure || c.TLS == (config.TLS{}) {
		return nil, nil
	}
	return pki.Open(c.TLS.CA, c.TLS.Cert, c.TLS.Key, c.Node)
}
