// Package sysfs reads what Linux says of devices in /sys and /proc, in small files of text. What cannot be read is not known, which is
// no error: files come and go with their devices, and containers hide some.
package sysfs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var function = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// IsFunction tells whether a folder is named as those of PCI functions are, "0000:1b:00.0".
func IsFunction(name string) bool { return function.MatchString(name) }

// Text returns what a file says, without the white space around it; "" when it cannot be read.
func Text(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// NUMA returns the NUMA node of the device with that folder; -1 when the firmware does not say.
func NUMA(device string) int {
	n, err := strconv.Atoi(Text(device, "numa_node"))
	if err != nil || n < 0 {
		return -1
	}
	return n
}
