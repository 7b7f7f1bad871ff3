package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

func scaled(most int) spec.Spec {
	s := spec.Default()
	s.Scale.Max, s.Scale.TargetInflight = most, 1
	return s
}

func TestDemandIsReportedWhenItChangesAndNowAndThen(t *testing.T) {
	var demand []pool.Demand
	var reports []api.Demand
	noSpec := func(context.Context, string) (api.PoolStatus, error) {
		return api.PoolStatus{}, context.DeadlineExceeded
	}
	epoch := int64(3)
	r := newDemandReporter("h", func() []pool.Demand { return demand }, noSpec, func() int64 { return epoch },
		func(pool string, d api.Demand) {
			require.Equal(t, "p", pool)
			reports = append(reports, d)
		})
	now := time.Now()
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); now = now.Add(demandInterval) {
			r.step(t.Context(), now)
		}
	}
	demand = []pool.Demand{{Pool: "p", Spec: scaled(9)},
		{Pool: "fixed", Spec: spec.Default(), Demand: policy.Demand{Calls: 7}}}
	pass(time.Hour)
	require.Empty(t, reports, "no demand, and a pool that does not follow it")
	demand[0].Calls = 4
	pass(2 * time.Second)
	require.Equal(t, []api.Demand{{Host: "h", Epoch: 3, Load: 4, Calls: 4, ExpiryMS: demandExpiry.Milliseconds()}},
		reports)
	pass(demandRepeat + time.Minute)
	require.Len(t, reports, 2, "a steady demand is repeated before it expires")
	epoch = 4
	pass(time.Minute)
	require.Len(t, reports, 3, "the pool has forgotten the demand of the epoch that ended")
	require.Equal(t, api.Demand{Host: "h", Epoch: 4, Load: 4, Calls: 4, ExpiryMS: demandExpiry.Milliseconds()}, reports[2])
	demand = demand[1:]
	pass(time.Minute)
	require.Len(t, reports, 4, "the gateway has forgotten the pool")
	require.Zero(t, reports[3].Load)
	require.Len(t, r.pools, 1)
	r.reads.Wait()
}

func TestDemandThatThePoolDoesNotKnowIsReportedAtOnce(t *testing.T) {
	var reports []api.Demand
	known := api.ScaleStatus{}
	status := api.PoolStatus{Spec: scaled(9), Scale: &known}
	demand := []pool.Demand{{Pool: "p", Spec: scaled(9), Demand: policy.Demand{Waiting: 1, NoWorkers: true}}}
	r := newDemandReporter("h", func() []pool.Demand { return demand },
		func(context.Context, string) (api.PoolStatus, error) { return status, nil },
		func() int64 { return 3 }, func(_ string, d api.Demand) { reports = append(reports, d) })
	now := time.Now()
	step := func(want int, why string) {
		r.step(t.Context(), now)
		r.reads.Wait()
		r.step(t.Context(), now)
		require.Len(t, reports, want, why)
		r.pools["p"].spec.Store(&readSpec{scaled(9), now.Add(-specMaxAge)})
	}
	step(1, "a call without any worker")
	require.InDelta(t, 1, reports[0].Load, 0)
	step(2, "the pool was started again")
	status.Stopping = true
	step(2, "the pool takes no more reports")
	status.Stopping, known.Demand = false, make([]api.HostDemand, api.MaxDemands)
	step(2, "the pool takes no report of another host")
	known.Demand = []api.HostDemand{{Host: "h"}}
	step(2, "the pool knows it")
}

// TestTheScaleSectionIsReadFromThePool uses the real loop: a pool whose processes have an older spec.
func TestTheScaleSectionIsReadFromThePool(t *testing.T) {
	reported := make(chan api.Demand, 1)
	old := spec.Default()
	r := newDemandReporter("h", func() []pool.Demand {
		return []pool.Demand{{Pool: "p", Spec: old, Demand: policy.Demand{Calls: 2, QueueFull: true}}}
	}, func(context.Context, string) (api.PoolStatus, error) { return api.PoolStatus{Spec: scaled(9)}, nil },
		func() int64 { return 1 }, func(_ string, d api.Demand) { reported <- d })
	p := &measuredPool{}
	p.spec.Store(&readSpec{old, time.Now().Add(-specMaxAge)})
	r.pools["p"] = p
	background(t, r.run)
	require.InDelta(t, 2, next(t, reported).Load, 0, "the spec was read")
}
