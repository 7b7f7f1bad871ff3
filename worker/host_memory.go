package worker

import "github.com/tempool/tempool/policy"

// HostMemory is one look at a host's memory, or at what its container may use of it where that is less.
type HostMemory struct {
	AvailableBytes int64
	TotalBytes     int64
	// SomeAvg10 and FullAvg10 are the kernel's pressure stall figures, see policy.HostMemory.
	SomeAvg10 float64
	FullAvg10 float64
}

func (m HostMemory) toPolicy() policy.HostMemory {
	look := policy.HostMemory{AvailableShare: 1, SomeAvg10: m.SomeAvg10, FullAvg10: m.FullAvg10}
	if m.TotalBytes > 0 {
		look.AvailableShare = float64(m.AvailableBytes) / float64(m.TotalBytes)
	}
	return look
}
