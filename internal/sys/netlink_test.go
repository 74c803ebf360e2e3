package sys

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// Close ends a read that waits for an event. What the kernel refuses leaves nothing behind.
func TestNetlinkEvents(t *testing.T) {
	f, err := NetlinkEvents(syscall.NETLINK_ROUTE, syscall.RTNLGRP_IPV4_MROUTE)
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EPERM) {
		t.Skipf("no netlink here: %v", err)
	}
	noErr(t, err)
	ended := make(chan error)
	go func() {
		_, err := f.Read(make([]byte, 64))
		ended <- err
	}()
	noErr(t, f.Close())
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("the read ended with %v", err)
	}
	if _, err := NetlinkEvents(1000); !errors.Is(err, syscall.EPROTONOSUPPORT) {
		t.Errorf("a family that is none: %v", err)
	}
}
