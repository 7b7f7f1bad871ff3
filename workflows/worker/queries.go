package worker

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func (w *worker) registerQueries(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, api.QueryState, w.state); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, api.QueryMetrics, w.metrics); err != nil {
		return err
	}
	return workflow.SetQueryHandler(ctx, api.QueryHistory, w.history)
}

// state answers the query state.
func (w *worker) state() (api.WorkerState, error) {
	s := api.WorkerState{
		Worker: w.name(), State: w.Machine.State, Health: w.Machine.Health,
		Incarnation: w.Machine.Incarnation, Host: w.Process.Host, PID: w.Process.PID,
		Lease: w.Lease, LeaseSeq: w.LeaseSeq, Since: w.Machine.Since, Reason: w.reason(), SpecVersion: w.SpecVersion,
		LastRefusal: w.LastRefusal, Limits: w.Process.Limits, LimitsApplied: w.Process.LimitsApplied, Leaving: w.drainingNumbers(), LastRotation: w.LastRotation,
	}
	if a := w.Assessment; a != nil {
		s.Grade, s.Score = a.Grade, &a.Score
	}
	if w.Successor != nil {
		s.Successor = w.Successor.Incarnation
	}
	if w.Rotation != nil {
		s.Rotation = &w.Rotation.RotationStatus
	}
	return s, nil
}

// metrics answers the query metrics. Times that run are as of the last workflow task.
func (w *worker) metrics() (api.WorkerMetrics, error) {
	c := w.Counters
	m := api.Metrics{
		ID:             w.name(),
		RequestsServed: c.RequestsServed, RequestsFailed: c.RequestsFailed, TotalCallTimeMS: c.TotalCallTimeMS,
		PeakMemoryBytes: c.PeakMemoryBytes, LastRequestAt: known(c.LastRequestAt),
		Restarts: max(0, w.Machine.Incarnation-1), ConsecutiveFailures: w.Failures, Rotations: c.Rotations, RotationsByReason: c.RotationsByReason, RestartsByReason: c.RestartsByReason, CallsCut: c.CallsCut,
		LeasesGranted: c.LeasesGranted, LeasesRefused: c.LeasesRefused,
	}
	if c.RequestsServed > 0 {
		m.AvgCallTimeMS = float64(c.TotalCallTimeMS) / float64(c.RequestsServed)
	}
	if s := w.Sample; s != nil && w.Machine.State.Live() {
		m.CurrentMemoryBytes, m.CPUPercent, m.OpenFiles, m.Threads = s.RSSBytes, s.CPUPercent, s.OpenFiles, s.Threads
	}
	if w.Assessment != nil {
		m.Warnings = w.Assessment.Warnings
	}
	if w.Machine.State.Live() && w.Machine.State != lifecycle.Starting {
		m.StartedAt = known(w.Machine.StartedAt)
		m.UptimeS = w.now().Sub(w.Machine.StartedAt).Seconds()
		if w.Machine.StartedAt.IsZero() {
			m.UptimeS = 0
		}
	}
	return api.WorkerMetrics{State: w.Machine.State, Metrics: m}, nil
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// history answers the query history.
func (w *worker) history() ([]lifecycle.Transition, error) {
	if w.Machine.Ring == nil {
		return []lifecycle.Transition{}, nil
	}
	return w.Machine.Ring, nil
}
