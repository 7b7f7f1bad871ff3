//go:build !linux

package worker

import (
	"fmt"

	"github.com/shirou/gopsutil/v3/mem"
)

// hostMemory asks the system, which tells of no stalls.
func hostMemory() (MemoryLook, error) {
	memory, err := mem.VirtualMemory()
	if err != nil {
		return MemoryLook{}, fmt.Errorf("read the host's memory: %w", err)
	}
	return MemoryLook{AvailableBytes: int64(memory.Available), TotalBytes: int64(memory.Total)}, nil
}
