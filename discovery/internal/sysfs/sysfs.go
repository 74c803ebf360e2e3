// Package sysfs reads what Linux says of devices in /sys and /proc, in small text files. A file that cannot be read
// is no error, its value is just unknown: files come and go with their devices, and containers hide some.
package sysfs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var function = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// IsFunction says whether a name is that of a PCI function, "0000:1b:00.0".
func IsFunction(name string) bool { return function.MatchString(name) }

// Text returns a file's content without surrounding white space; "" if it cannot be read.
func Text(elem ...string) string {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// NUMA returns the NUMA node of the device with that folder; -1 if the firmware does not say.
func NUMA(device string) int {
	n, err := strconv.Atoi(Text(device, "numa_node"))
	if err != nil || n < 0 {
		return -1
	}
	return n
}
