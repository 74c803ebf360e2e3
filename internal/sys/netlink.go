package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NetlinkEvents returns a file that gets what the kernel tells some groups
// (RTNLGRP_LINK and so on, from 1 to 32) of a netlink family. Each read is one
// message, or as much of it as the buffer takes; ENOBUFS says that some were
// lost. The file is the caller's; Close ends a read.
func NetlinkEvents(family int, groups ...uint) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	to := unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		to.Groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &to); err != nil {
		_ = Close(fd)
		return nil, fmt.Errorf("netlink groups %v: %w", groups, err)
	}
	return PollFile(fd, "netlink")
}
