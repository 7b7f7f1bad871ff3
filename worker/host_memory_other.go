//go:build !linux

package worker

import (
	"fmt"

	"github.com/shirou/gopsutil/v3/mem"
)

// readHostMemory asks the operating system, which has no stall figures here. Any root but "/" is an error.
func readHostMemory(root string) (HostMemory, error) {
	if root != "/" {
		return HostMemory{}, fmt.Errorf("read the host's memory below %s: only Linux has it in files", root)
	}
	memory, err := mem.VirtualMemory()
	if err != nil {
		return HostMemory{}, fmt.Errorf("read the host's memory: %w", err)
	}
	return HostMemory{AvailableBytes: int64(memory.Available), TotalBytes: int64(memory.Total)}, nil
}
