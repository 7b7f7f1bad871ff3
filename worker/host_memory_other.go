//go:build !linux

package worker

import (
	"fmt"

	"github.com/shirou/gopsutil/v3/mem"
)

// readHostMemory asks the system, which tells of no stalls and has no files to read below another root.
func readHostMemory(root string) (HostMemory, error) {
	if root != "/" {
		return HostMemory{}, fmt.Errorf("read the host's memory below %s: only Linux tells of it in files", root)
	}
	memory, err := mem.VirtualMemory()
	if err != nil {
		return HostMemory{}, fmt.Errorf("read the host's memory: %w", err)
	}
	return HostMemory{AvailableBytes: int64(memory.Available), TotalBytes: int64(memory.Total)}, nil
}
