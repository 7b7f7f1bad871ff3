package limits

import "errors"

// HostCgroupFS fails: only Linux has cgroups.
func HostCgroupFS() (CgroupFS, error) { return CgroupFS{}, errors.New("this system has no cgroups") }

// DetectHost returns what macOS offers: rlimits of a process on itself, no affinity, no OOM score, no changes to other
// processes.
func DetectHost() Host { return Host{} }
