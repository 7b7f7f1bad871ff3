package worker

// The sequence numbers of a worker's leases must never be used twice: a holder may still have the lease with that
// number. What a worker remembers may get lost: its workflow or its pool's may be terminated, reset, or started again.
// Time does not, so a pool starts each worker with the Unix time in milliseconds as its sequence, and numbers follow
// the time from then on. Those of a worker that was not started by a pool count from 1.

// firstTime is below all numbers that are times, and above all others.
const firstTime = 1_000_000_000_000

// nextSeq is the sequence number of the next lease.
func (l *leases) nextSeq() int64 {
	if l.LeaseSeq < firstTime {
		return l.LeaseSeq + 1
	}
	return max(l.LeaseSeq+1, l.Now().UnixMilli())
}
