package sweeper

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func TestCallsThatWaitInTemporalAreDemand(t *testing.T) {
	s := spec.Default()
	s.Pool.Name, s.Scale.Max, s.Scale.TargetInflight, s.Scale.UpAfter = "p", 5, 1, spec.Duration(3*time.Second)
	waiting, status := map[string]int{}, api.PoolStatus{Spec: s, Scale: &api.ScaleStatus{}}
	var reports []api.Demand
	var refused error
	w := &waitingCalls{
		log: slog.New(slog.DiscardHandler), measured: map[string]*waitingPool{},
		list:    func(context.Context) ([]string, error) { return []string{"idle", "p"}, nil },
		waiting: func(_ context.Context, pool string) (int, error) { return waiting[pool], nil },
		status:  func(context.Context, string) (api.PoolStatus, error) { return status, nil },
		report: func(_ context.Context, pool string, d api.Demand) error {
			require.Equal(t, "p", pool)
			if refused == nil {
				reports = append(reports, d)
			}
			return refused
		},
	}
	now := time.Now()
	round := func(after time.Duration) []api.Demand {
		now, reports = now.Add(after), nil
		err := w.round(t.Context(), now)
		require.ErrorIs(t, err, refused)
		return reports
	}
	report := func(load float64, waiting int) []api.Demand {
		return []api.Demand{{Host: api.DemandOfWorkflows, Load: load, Waiting: waiting,
			ExpiryMS: leastWaitingExpiry.Milliseconds()}}
	}
	require.Empty(t, round(0), "nothing waits")

	waiting["p"] = 2
	refused = errors.New("Temporal is not reached")
	require.Empty(t, round(backlogInterval))
	refused = nil
	require.Equal(t, report(2, 2), round(backlogInterval),
		"a pool without workers is reported at once, even if the last report failed")
	require.Empty(t, round(backlogInterval), "nothing has changed")
	require.Equal(t, report(2, 2), round(waitingRepeat), "a report is repeated before it expires")

	waiting["p"] = 0
	require.Equal(t, report(0, 0), round(backlogInterval), "an agent has taken the calls and reports them")
	require.Empty(t, w.measured)

	status.Workers = []api.RosterEntry{{Endpoint: "unix:/x", State: "ready"}}
	waiting["p"] = 4
	require.Empty(t, round(backlogInterval), "a pool with workers is reported only if its calls keep waiting")
	require.Equal(t, report(4, 4), round(s.Scale.UpAfter.D()))

	t.Run("a pool of a fixed size is not reported", func(t *testing.T) {
		status.Spec.Scale = spec.Default().Scale
		clear(w.measured)
		require.Empty(t, round(backlogInterval))
		require.Empty(t, round(time.Hour))
	})
	t.Run("a pool that has ended is forgotten", func(t *testing.T) {
		w.list = func(context.Context) ([]string, error) { return nil, nil }
		require.Empty(t, round(poolsInterval))
		require.Empty(t, w.measured)
	})
	t.Run("many pools take turns", func(t *testing.T) {
		pools := make([]string, backlogsPerRound+3)
		for i := range pools {
			pools[i] = api.WorkerName("pool", i)
		}
		w.list = func(context.Context) ([]string, error) { return pools, nil }
		read := map[string]int{}
		w.waiting = func(_ context.Context, pool string) (int, error) {
			read[pool]++
			return 0, nil
		}
		require.Empty(t, round(poolsInterval))
		require.Len(t, read, backlogsPerRound)
		require.Empty(t, round(backlogInterval))
		require.Len(t, read, len(pools))
	})
	t.Run("a report outlasts the turns of very many pools", func(t *testing.T) {
		status.Spec = s
		pools := make([]string, 100*backlogsPerRound)
		for i := range pools {
			pools[i] = api.WorkerName("pool", i)
		}
		pools[0] = "p"
		w.list = func(context.Context) ([]string, error) { return pools, nil }
		w.waiting = func(_ context.Context, pool string) (int, error) { return waiting[pool], nil }
		w.next, status.Workers = 0, nil
		clear(w.measured)
		var expires time.Time
		for range 5 * len(pools) / backlogsPerRound {
			for _, d := range round(backlogInterval) {
				require.True(t, expires.IsZero() || now.Before(expires), "the report before counts until this one")
				expires = now.Add(time.Duration(d.ExpiryMS) * time.Millisecond)
			}
		}
		require.True(t, now.Before(expires))
	})
}
