package worker

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// state answers the query state, as of the last workflow task.
func (r reporter) state() (api.WorkerState, error) {
	s := api.WorkerState{
		Worker: r.name(), State: r.Machine.State, Health: r.Machine.Health,
		Incarnation: r.Machine.Incarnation, Host: r.Process.Host, PID: r.Process.PID,
		Lease: r.leases.leaseAt(r.Now()), AsOf: r.Now(), LeaseSeq: r.LeaseSeq, Since: r.Machine.Since,
		UpdatedAt: r.Machine.UpdatedAt,
		Reason:    r.reason(), SpecVersion: r.SpecVersion,
		LastRefusal: r.LastRefusal, Limits: r.Process.Limits, LimitsApplied: r.Process.LimitsApplied,
		Draining: r.surge.drainingNumbers(), LastRotation: r.LastRotation,
	}
	if a := r.Assessment; a != nil {
		s.Grade, s.Score = a.Grade, &a.Score
	}
	if r.Successor != nil {
		s.Successor = r.Successor.Incarnation
	}
	if r.Rotation != nil {
		s.Rotation = &r.Rotation.RotationStatus
	}
	return s, nil
}

// metrics answers the query metrics. Uptime is as of the last workflow task.
func (r reporter) metrics() (api.WorkerMetrics, error) {
	c := r.leases.counters()
	m := api.Metrics{
		ID: r.name(), WorkerCounters: c.WorkerCounters, Restarts: max(0, r.Machine.Incarnation-1),
		ConsecutiveFailures: r.failures(),
	}
	if !c.LastRequestAt.IsZero() {
		m.LastRequestAt = &c.LastRequestAt
	}
	if c.RequestsServed > 0 {
		m.AvgCallTimeMS = float64(c.TotalCallTimeMS) / float64(c.RequestsServed)
	}
	if s := r.Sample; s != nil && r.Machine.State.Live() {
		m.CurrentMemoryBytes, m.MemorySource = s.MemoryBytes, s.MemorySource
		m.CPUPercent, m.OpenFiles, m.Threads, m.Network = s.CPUPercent, s.OpenFiles, s.Threads, s.Network
	}
	if a := r.Assessment; a != nil {
		m.Assess(*a)
	}
	if started := r.Machine.StartedAt; r.Machine.State.Live() && r.Machine.State != lifecycle.Starting &&
		!started.IsZero() {
		m.StartedAt = &started
		m.UptimeS = r.Now().Sub(started).Seconds()
	}
	return api.WorkerMetrics{State: r.Machine.State, Metrics: m, Counted: r.leases.counted()}, nil
}

// history answers the query history.
func (r reporter) history() ([]lifecycle.Transition, error) {
	if r.Machine.Ring == nil {
		return []lifecycle.Transition{}, nil
	}
	return r.Machine.Ring, nil
}

// spec answers the query spec.
func (r reporter) spec() (api.WorkerSpec, error) {
	return api.WorkerSpec{Spec: r.Spec, Version: r.SpecVersion}, nil
}
