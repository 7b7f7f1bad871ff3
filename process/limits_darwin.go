package process

// kernelMeans: macOS lets a process limit itself, but knows neither affinity nor scores for its choice of whom to kill, and nobody
// changes another's limits.
func kernelMeans() hostMeans { return hostMeans{rlimits: true, unsupported: "macOS"} }

// limitSelfHere has nothing to set: planLimits has refused the rest.
func limitSelfHere(processLimits) error { return nil }

// changeLimits is never reached: hostMeans says that it cannot be done.
func changeLimits(int, processLimits, processLimits) error {
	return coded(CodeInvalid, nil, "limits of a running process cannot be changed on macOS")
}
