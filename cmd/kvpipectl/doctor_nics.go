package main

import (
	"fmt"
	"strings"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

// nics checks the links that carry data to other nodes. Configured names that do not exist are among the daemon's
// warnings.
func (d *doctor) nics(s *admin.Status, n admin.NICs) []finding {
	const check = "NICs"
	var used, down []string
	for _, x := range n.NICs {
		switch {
		case x.Used:
			name := x.Name
			if x.Mbps > 0 {
				name += " (" + speed(x.Mbps) + ")"
			}
			used = append(used, name)
		case x.PCI != "" && x.Refused == "down" && len(x.Addresses) > 0:
			down = append(down, x.Name)
		}
	}
	switch {
	case n.State == "" || alone(s):
		return nil // not needed, or an older daemon
	case n.State == "unknown":
		return []finding{warn(check, "let the daemon use netlink, or live with data links that go where the routes lead them", "%s", n.Reason)}
	}
	var found []finding
	if len(down) > 0 {
		found = append(found, warn(check, "see to cable, switch port and ip link; data links come back by themselves", "down, though they have addresses: %s", strings.Join(down, ", ")))
	}
	switch {
	case len(used) == 0:
		found = append(found, warn(check, "kvpipectl nics says why each is not used; correct nic_allow and nic_deny", "none is used: data links go where the routes lead them"))
	case n.Streams > 0 && n.Streams < len(used):
		found = append(found, warn(check, fmt.Sprintf("set tcp.streams to a multiple of %d here and on the peers, or name the wanted ones in nic_allow", len(used)),
			"%d could carry data links, but a channel has %d (tcp.streams): %s", len(used), n.Streams, strings.Join(used, ", ")))
	default:
		found = append(found, fine(check, "data links may go over %s", strings.Join(used, ", ")))
	}
	return found
}
