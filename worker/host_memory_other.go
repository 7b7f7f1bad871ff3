//go:build !linux

package worker

import (
	"fmt"

	"github.com/shirou/gopsutil/v3/mem"
)

// readHostMemory asks the operating system, which has no stall figures here. Any root but "/" is an error.
func readHostMemory(root string) (hostMemory, error) {
	if root != "/" {
		return hostMemory{}, fmt.Errorf("read the host's memory below %s: only Linux has it in files", root)
	}
	memory, err := mem.VirtualMemory()
	if err != nil {
		return hostMemory{}, fmt.Errorf("read the host's memory: %w", err)
	}
	return hostMemory{AvailableBytes: int64(memory.Available), TotalBytes: int64(memory.Total)}, nil
}
