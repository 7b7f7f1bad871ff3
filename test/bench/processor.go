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

// side is one side of a comparison of rates.
type side struct {
	rate           *series
	program        int     // the process of a side in Go; 0 for another one
	workers        []int   // its Python processes
	ofGo, ofPython *series // the processor time of a call; nil where there is no such process
	run            func(span time.Duration) (perSecond float64)
}

// side adds the rows of a side to the table.
func (r *result) side(name, unit string, program int, workers []int, run func(time.Duration) float64) *side {
	s := &side{rate: r.row(name, unit), program: program, workers: workers, run: run}
	if program != 0 {
		s.ofGo = r.row(name+", Go", "µs/call")
	}
	if len(workers) > 0 {
		s.ofPython = r.row(name+", Python", "µs/call")
	}
	return s
}

// compare runs the sides in turn, and each for a while before it is measured.
func (b *bench) compare(sides []*side, warm, span time.Duration) {
	b.inTurn(len(sides), func(i int) {
		s := sides[i]
		s.run(warm)
		ofGo, ofPython, began := processorTime(s.program), processorTime(s.workers...), time.Now()
		perSecond := s.run(span)
		calls := perSecond * time.Since(began).Seconds()
		s.rate.add(perSecond)
		if s.ofGo != nil {
			s.ofGo.add((processorTime(s.program) - ofGo).Seconds() * 1e6 / calls)
		}
		if s.ofPython != nil {
			s.ofPython.add((processorTime(s.workers...) - ofPython).Seconds() * 1e6 / calls)
		}
	})
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
