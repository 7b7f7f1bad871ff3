//go:build !linux

package worker

import (
	"fmt"

	"github.com/shirou/gopsutil/v3/mem"
)

// memoryBelow asks the system, which tells of no stalls and has no files to read below another root.
func memoryBelow(root string) (MemoryLook, error) {
	if root != "/" {
		return MemoryLook{}, fmt.Errorf("read the host's memory below %s: only Linux tells of it in files", root)
	}
	memory, err := mem.VirtualMemory()
	if err != nil {
		return MemoryLook{}, fmt.Errorf("read the host's memory: %w", err)
	}
	return MemoryLook{AvailableBytes: int64(memory.Available), TotalBytes: int64(memory.Total)}, nil
}
