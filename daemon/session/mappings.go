package session

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usualMappings is what the kernel lets a process map unless somebody says otherwise.
const usualMappings = 65530

// maxMapped is how many regions may be mapped at a time: half of what a process may map (vm.max_map_count). Where nothing more can be mapped
// the Go runtime finds no memory for itself and ends the process.
func maxMapped(procRoot string) int {
	b, err := os.ReadFile(filepath.Join(procRoot, "sys/vm/max_map_count"))
	n, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil {
		n = usualMappings
	}
	return max(n/2, 1)
}
