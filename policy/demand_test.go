package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// samples feeds a meter with one load for a time, and returns what it reports on the way.
func samples(m DemandMeter, s *Measured, now *time.Time, d Demand, length time.Duration) (reported []float64) {
	const step = 250 * time.Millisecond
	for end := now.Add(length); now.Before(end); *now = now.Add(step) {
		var changed bool
		if *s, changed = m.Next(*s, d, *now); changed {
			reported = append(reported, s.Reported)
		}
	}
	return reported
}

func TestAMeterReportsOnlyDemandThatLasts(t *testing.T) {
	m := DemandMeter{MaxInflight: 1, PerWorker: 0.7, Max: 20, UpAfter: time.Second, Hold: 4 * time.Second}
	var s Measured
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Empty(t, samples(m, &s, &now, Demand{Calls: 4}, 500*time.Millisecond))
	require.Empty(t, samples(m, &s, &now, Demand{}, 2*time.Second), "half a second of demand is not reported")
	up := samples(m, &s, &now, Demand{Calls: 7}, 2*time.Second)
	require.Len(t, up, 1)
	require.InDelta(t, 7, up[0], 0.001, "after up_after")
	require.Empty(t, samples(m, &s, &now, Demand{Calls: 7}, time.Hour), "a steady demand is reported once")
	require.Empty(t, samples(m, &s, &now, Demand{Calls: 2}, 3*time.Second))
	require.Empty(t, samples(m, &s, &now, Demand{Calls: 7}, time.Second), "a short pause is not reported")
	require.Equal(t, []float64{2}, samples(m, &s, &now, Demand{Calls: 2}, 5*time.Second), "after the hold time")
	require.Equal(t, []float64{0}, samples(m, &s, &now, Demand{}, 10*time.Second))
	require.Equal(t, Measured{}.Reported, s.Reported)
}

func TestAMeterReportsAFullQueueAndAMissingWorkerAtOnce(t *testing.T) {
	m := DemandMeter{MaxInflight: 2, PerWorker: 1, Max: 5, UpAfter: time.Minute, Hold: time.Second}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		demand Demand
		want   float64
	}{
		"the queue is full":       {Demand{Calls: 1, Waiting: 3, QueueFull: true}, 4},
		"no worker is here":       {Demand{Waiting: 1, NoWorkers: true}, 1},
		"a lease takes a worker":  {Demand{Leases: 1, NoWorkers: true}, 2},
		"no more than the bounds": {Demand{Waiting: 1000, QueueFull: true}, 5},
	} {
		s, changed := m.Next(Measured{}, c.demand, now)
		require.True(t, changed, name)
		require.InDelta(t, c.want, s.Reported, 0, name)
	}
	s, changed := m.Next(Measured{}, Demand{NoWorkers: true}, now)
	require.False(t, changed, "no demand, no report")
	require.Zero(t, s.Reported)
}

// TestFluctuatingDemandIsReportedByItsMeanAndItsPeak bounds the reports of a load that is nowhere near steady.
func TestFluctuatingDemandIsReportedByItsMeanAndItsPeak(t *testing.T) {
	m := DemandMeter{MaxInflight: 1, PerWorker: 1, Max: 100, UpAfter: time.Second, Hold: 15 * time.Second}
	var s Measured
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	reports := 0
	for i := range 4 * 60 * 60 { // an hour
		var changed bool
		if s, changed = m.Next(s, Demand{Calls: 20 * (i % 2)}, now); changed {
			reports++
		}
		now = now.Add(250 * time.Millisecond)
	}
	require.InDelta(t, 10, s.Reported, 5)
	require.LessOrEqual(t, reports, 3)
}
