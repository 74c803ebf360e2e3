package sys

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// SetCongestion sets the congestion control of the TCP socket fd, by name:
// "cubic", "reno", ... (TCP_CONGESTION, tcp(7)). The kernel loads the module of
// that name if the process may do that.
func SetCongestion(fd int, name string) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return fmt.Errorf("set TCP_CONGESTION of fd %d to %q: %w", fd, name, err)
	}
	return nil
}

// Congestion tries a congestion control on a socket of its own and returns the
// one that sockets of this network namespace then have. "" stands for the
// system's (net.ipv4.tcp_congestion_control). The error names those that there
// are.
func Congestion(name string) (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if name != "" {
		err = SetCongestion(fd, name)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return "", fmt.Errorf("%q: this kernel has %s; give one of them, or load the module tcp_%s", name, controls("available"), name)
	case errors.Is(err, unix.EPERM):
		return "", fmt.Errorf("%q: without CAP_NET_ADMIN a process may choose of %s alone (net.ipv4.tcp_allowed_congestion_control)", name, controls("allowed"))
	case err != nil:
		return "", err
	}
	return unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
}

// controls lists the congestion controls that are "available" or "allowed".
func controls(which string) string {
	b, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_" + which + "_congestion_control")
	return cmp.Or(strings.Join(strings.Fields(string(b)), ", "), "none")
}
