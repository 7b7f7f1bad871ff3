package tempool

import (
	"context"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
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
	return policy.NewReport(status, workers, now)
}
