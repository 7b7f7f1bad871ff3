// Package uitest has the facts of a large pool: its workers are on two hosts, and its figures change with each turn.
package uitest

import (
	"fmt"
	"math"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// Size is that of the pool.
const Size = 1000

// Hosts are both hosts with their last heartbeats.
func Hosts(turn int64) []tempool.Host {
	hosts := []tempool.Host{{ID: "web-0", HeardAt: time.Now()}, {ID: "web-1", HeardAt: time.Now()}}
	for i := range hosts {
		hosts[i].Heartbeat.Agent = &api.AgentReport{Capacity: 600, Version: "v1", Labels: []string{"default"}}
	}
	for slot := range Size {
		host := &hosts[slot%2].Heartbeat
		host.Processes = append(host.Processes, api.ProcessReport{
			Process:  api.Process{Worker: api.WorkerName("large", slot), Incarnation: 1},
			InFlight: int(turn) % 3, UptimeMS: turn * 1000, Usage: api.Usage{Requests: turn * int64(slot), TotalMS: turn * 10},
			Sample:     &api.Sample{MemoryBytes: int64(slot)<<16 + turn<<20, CPUPercent: float64(slot % 100), At: time.Now()},
			Assessment: &api.Assessment{Grade: "good", Score: float64(100 - slot%40), MaxMemoryBytes: 512 << 20},
			Lease: &api.Lease{ID: fmt.Sprint("large.", slot, ".1.7"), Worker: api.WorkerName("large", slot),
				Holder: "gateway:web-0", ExpiresAt: time.Now()},
		})
	}
	return hosts
}

// Status is that of the pool, some of whose workers are out of service.
func Status() api.PoolStatus {
	s := api.PoolStatus{Pool: "large", Size: Size, SpecVersion: 1}
	for slot := range Size {
		entry := api.RosterEntry{Slot: slot, State: lifecycle.Ready, Incarnation: 1, Host: fmt.Sprint("web-", slot%2),
			PID: slot + 100, Endpoint: fmt.Sprint("http://web-", slot%2), Since: time.Now().Add(-time.Hour), SpecVersion: 1,
			LeaseSeq: int64(slot), RunID: "0197f1a2-5c1e-7d53-9c8b-1f2e3d4c5b6a", Starts: 1}
		if slot%97 == 5 {
			entry.State, entry.Reason = lifecycle.Pending, "waits before the next start: exited with code 3, 4 times in a row"
		}
		s.Workers = append(s.Workers, entry)
	}
	return s
}

// Samples are those of some workers.
func Samples(slots []int, turn int64) (all []api.RecentSamples) {
	for _, slot := range slots {
		one := api.RecentSamples{Worker: api.WorkerName("large", slot)}
		for i := range int64(api.MaxRecentSamples) {
			wave := 1 + math.Sin(float64(i+turn+int64(slot))/5)
			one.AgeMS, one.Incarnation = append(one.AgeMS, (api.MaxRecentSamples-i)*10_007), append(one.Incarnation, 1)
			one.MemoryBytes = append(one.MemoryBytes, int64(slot)<<16+int64(wave*float64(20<<20)))
			one.CPUPercent, one.CallsPerMinute, one.Score = append(one.CPUPercent, float32(wave)), append(one.CallsPerMinute,
				float32(math.Round(100*wave))), append(one.Score, 90.5)
		}
		all = append(all, one)
	}
	return all
}

// Queues are the figures of an hour of both gateways.
func Queues() (all []api.RecentQueue) {
	for host := range 2 {
		one := api.RecentQueue{Host: fmt.Sprint("web-", host), Methods: []api.MethodFigures{
			{Method: "tools/call", Calls: 9000, Errors: 45, TimeUS: 9000 * 31_000}, {Method: "render", Calls: 7, TimeUS: 9e6}}}
		for i := range int32(api.FigureMinutes) {
			wave := uint32(300 * (1.1 + math.Sin(float64(i)/9)))
			minute := api.Figures{AgeMS: (api.FigureMinutes - 1 - i) * 60_000, Seconds: 60, Calls: int64(2 * wave),
				Errors: api.Counts{{Name: "worker_error", Count: int64(i % 4)}}, Queue: int64(i % 9),
				Waiting: api.Times{{0, wave}, {20480, wave / 3}}}
			for bucket := range 20 {
				minute.Serving = append(minute.Serving, [2]uint32{api.TimeBucketFrom(30 + bucket), wave / uint32(1+bucket)})
			}
			if i == 40 {
				minute.Processes = api.Counts{{Name: "stopped", Count: 500}, {Name: api.Deployed, Count: 500}}
			}
			one.Minutes = append(one.Minutes, minute)
		}
		all = append(all, one)
	}
	return all
}
