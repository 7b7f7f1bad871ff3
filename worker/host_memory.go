package worker

import "github.com/tempool/tempool/policy"

// HostMemory is the memory of a host, or of its container where that is less.
type HostMemory struct {
	AvailableBytes int64
	TotalBytes     int64
	// SomeAvg10 and FullAvg10 are the kernel's pressure stall figures, see policy.HostMemory.
	SomeAvg10 float64
	FullAvg10 float64
}

func (m HostMemory) toPolicy() policy.HostMemory {
	memory := policy.HostMemory{AvailableShare: 1, SomeAvg10: m.SomeAvg10, FullAvg10: m.FullAvg10}
	if m.TotalBytes > 0 {
		memory.AvailableShare = float64(m.AvailableBytes) / float64(m.TotalBytes)
	}
	return memory
}
