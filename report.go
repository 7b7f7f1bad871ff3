package tempool

import (
	"context"
	"fmt"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// Report is the health of a pool and of each worker, its problems and their fixes.
type Report = policy.Report

// Report queries the pool and its workers for their states, and reports on them.
func (p *Pool) Report(ctx context.Context) (Report, error) {
	status, err := p.Running(ctx)
	if err != nil {
		return Report{}, err
	}
	workers, err := p.Workers(ctx)
	if err != nil {
		return Report{}, err
	}
	return NewReport(status, workers, time.Now()), nil
}

// NewReport reports on the states of a pool and its workers, as they were at now.
func NewReport(status api.PoolStatus, workers api.PoolWorkers, now time.Time) Report {
	return policy.NewReport(reportFacts(status, workers, now))
}

// reportFacts joins the states of a pool and its workers.
func reportFacts(status api.PoolStatus, view api.PoolWorkers, now time.Time) policy.PoolFacts {
	facts := policy.PoolFacts{
		Pool: view.Pool, Size: view.Size, SpecVersion: view.SpecVersion, Stopping: status.Stopping, StartsPaused: status.StartsPaused,
		MaxMemoryBytes: max(0, int64(status.Spec.Rotation.MaxMemory)), AutoMaxMemory: status.Spec.Rotation.MaxMemory == spec.Auto, At: now.UTC(),
	}
	if s := status.Scale; s != nil {
		facts.FollowsDemand = true
		if s.Cause == string(policy.ScaledToMax) {
			facts.AboveMax = s.Reason
		}
	}
	if r := view.Rollout; r != nil {
		facts.Rollout, facts.Halted = fmt.Sprintf("%s, %d done and %d to go", r.Reason, r.Done, len(r.Waiting)+len(r.Current)), r.Halted
	}
	resting := map[string]bool{}
	for _, entry := range status.Workers {
		resting[api.WorkerName(status.Pool, entry.Slot)] = entry.Resting
	}
	for _, w := range view.Workers {
		facts.Workers = append(facts.Workers, workerFacts(w, resting[w.Worker]))
	}
	return facts
}

func workerFacts(w api.Worker, resting bool) policy.WorkerFacts {
	f := policy.WorkerFacts{
		Worker: w.Worker, State: w.State, Health: w.Health, Since: w.Since, Reason: w.Reason, Host: w.Host, Resting: resting, Unreachable: w.Error,
	}
	if w.Error != "" {
		return f
	}
	f.Measured, f.Grade, f.Score, f.Warnings = true, policy.Grade(w.Grade), w.Score, w.Warnings
	f.Watch, f.FailsIn = w.Watch, time.Duration(w.FailsInS*float64(time.Second))
	if w.Lease != nil {
		f.Holder = w.Lease.Holder
	}
	f.Requests, f.Failed, f.CallTime = w.RequestsServed, w.RequestsFailed, time.Duration(w.TotalCallTimeMS)*time.Millisecond
	f.MemoryBytes, f.PeakMemoryBytes, f.CPUPercent = w.CurrentMemoryBytes, w.PeakMemoryBytes, w.CPUPercent
	f.MaxMemoryBytes = w.MaxMemoryBytes
	f.OpenFiles, f.Threads, f.Uptime = w.OpenFiles, w.Threads, time.Duration(w.UptimeS*float64(time.Second))
	if n := w.Network; n != nil {
		f.Network = &policy.NetworkUsage{ReceivedBytes: n.ReceivedBytes, SentBytes: n.SentBytes}
	}
	f.Ended = map[lifecycle.State]int64{}
	for outcome, n := range w.EndedByOutcome {
		f.Ended[lifecycle.State(outcome)] = n
	}
	f.Restarts, f.Rotations, f.ConsecutiveFailures = w.RestartsByReason, w.RotationsByReason, w.ConsecutiveFailures
	addRotations(&f, w)
	return f
}

// addRotations adds the state of the worker's replacements.
func addRotations(f *policy.WorkerFacts, w api.Worker) {
	if r := w.Rotation; r != nil {
		f.Replacing = r.Reason
	}
	if w.LastRotation != nil {
		f.Rotated = w.LastRotation.Reason
	}
	if last := w.LastRotation; last != nil && last.Incarnation == w.Incarnation {
		f.ReplacementFailed = last.Failed
		if last.Observed {
			f.Observed = last.Reason
		}
	}
}
