package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool"
)

// processor measures the processor time of a call, in the Go program and in the Python workers.
type processor struct {
	program        int     // the process of the Go side
	workers        []int   // those of the workers
	ofGo, ofPython *series // ofPython is nil for no workers
}

// during runs a side and adds what its calls took.
func (p *processor) during(run func() (perSecond float64)) (perSecond float64) {
	ofGo, ofPython, began := processorTime(p.program), processorTime(p.workers...), time.Now()
	perSecond = run()
	calls := perSecond * time.Since(began).Seconds()
	p.ofGo.add((processorTime(p.program) - ofGo).Seconds() * 1e6 / calls)
	if p.ofPython != nil {
		p.ofPython.add((processorTime(p.workers...) - ofPython).Seconds() * 1e6 / calls)
	}
	return perSecond
}

// processorTime is what the threads of processes have used. The scheduler counts it in nanoseconds; /proc/PID/stat has
// ticks of 10 ms.
func processorTime(pids ...int) (all time.Duration) {
	for _, pid := range pids {
		for _, thread := range must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))) {
			text, err := os.ReadFile(thread)
			if errors.Is(err, os.ErrNotExist) {
				continue // the thread has ended
			}
			check(err)
			used, _, _ := strings.Cut(string(text), " ")
			all += time.Duration(must(strconv.ParseInt(used, 10, 64)))
		}
	}
	return all
}

// childrenOf are the processes that a process has started.
func childrenOf(ctx context.Context, pid int) (pids []int) {
	for _, child := range must((&process.Process{Pid: int32(pid)}).ChildrenWithContext(ctx)) {
		pids = append(pids, int(child.Pid))
	}
	return pids
}

// workersOf are the processes of a pool's workers.
func workersOf(ctx context.Context, pool *tempool.Pool) (pids []int) {
	for slot := range callWorkers {
		pids = append(pids, must(pool.State(ctx, slot)).PID)
	}
	return pids
}
