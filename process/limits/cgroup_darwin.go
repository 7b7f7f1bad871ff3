package limits

import "errors"

// HostCgroupFS fails: only Linux has cgroups.
func HostCgroupFS() (CgroupFS, error) { return CgroupFS{}, errors.New("this system has no cgroups") }
