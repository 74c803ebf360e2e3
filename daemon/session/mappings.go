package session

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usualMappings is the kernel's default for vm.max_map_count.
const usualMappings = 65530

// maxMapped returns how many regions may be mapped at a time: half of vm.max_map_count, the mappings that a process may
// have. When nothing more can be mapped, the Go runtime finds no memory for itself and ends the process.
func maxMapped(procRoot string) int {
	b, err := os.ReadFile(filepath.Join(procRoot, "sys/vm/max_map_count"))
	n, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil {
		n = usualMappings
	}
	return max(n/2, 1)
}
