package worker

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tempool/tempool/api"
)

const (
	// maxHeartbeat bounds the processes in a heartbeat, in bytes of JSON. Temporal fails an activity whose heartbeat has more than 2 MiB, and a host
	// with that many processes would be suspect all the time.
	maxHeartbeat = 3 << 19
	// fewProcesses are certain to fit, whatever the names of hosts and holders.
	fewProcesses = 500
)

// bounded is a heartbeat that fits. Where not all of it does, it has of the last workers only which they are and what they have served, which counts
// if the host is lost; and if even that is too much, it leaves out the last of them.
func bounded(h api.HostHeartbeat) api.HostHeartbeat {
	if len(h.Processes) <= fewProcesses {
		return h
	}
	all := slices.SortedFunc(slices.Values(h.Processes), func(a, b api.ProcessReport) int { return strings.Compare(a.Worker, b.Worker) }) // each time the same ones
	sizes, size := make([]int, len(all)), 0
	for i, p := range all {
		sizes[i] = jsonSize(p)
		size += sizes[i]
	}
	for i := len(all) - 1; i >= 0 && size > maxHeartbeat; i-- {
		all[i] = api.ProcessReport{Process: all[i].Process, Usage: all[i].Usage}
		bare := jsonSize(all[i])
		size -= sizes[i] - bare
		sizes[i] = bare
	}
	for size > maxHeartbeat {
		last := len(all) - 1
		size -= sizes[last]
		all = all[:last]
	}
	h.Processes = all
	return h
}

// jsonSize is the size of a report in a list.
func jsonSize(p api.ProcessReport) int {
	text, err := json.Marshal(p)
	if err != nil {
		return maxHeartbeat // a number that JSON does not have: the report is sent without it
	}
	return len(text) + len(",")
}
