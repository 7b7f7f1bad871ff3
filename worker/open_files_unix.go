//go:build unix

package worker

import (
	"math"
	"syscall"
)

// maxOpenFiles is how many files this process may have open; 0 is not known.
func maxOpenFiles() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(uint64(limit.Cur), math.MaxInt64))
}
