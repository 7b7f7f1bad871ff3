package limits

import "golang.org/x/sys/unix"

// DetectHost returns what this Linux host offers, without cgroups.
func DetectHost() Host {
	return Host{Linux: true, Cores: allowedCores()}
}

// allowedCores returns the cores that the agent may use; nil if the kernel does not say.
func allowedCores() (cores []int) {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return nil
	}
	for core := 0; len(cores) < allowed.Count(); core++ {
		if allowed.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}
