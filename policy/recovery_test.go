package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

var recovery = policy.Recovery{
	MaxConsecutiveFailures: 10, BackoffInitial: spec.Duration(100 * time.Millisecond),
	BackoffMax: spec.Duration(time.Minute), BackoffMultiplier: 3,
	HealthyReset: spec.Duration(time.Minute),
}

func TestACrashedWorkerComesBackFasterTheLessItCrashed(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 0, 1: 0, 2: 100 * time.Millisecond, 3: 300 * time.Millisecond, 4: 900 * time.Millisecond,
		5: 2700 * time.Millisecond,
		6: 8100 * time.Millisecond, 7: 24300 * time.Millisecond, 8: time.Minute, 9: time.Minute,
	} {
		d := recovery.Next(n, true, "exited with code 3", 0.5)
		require.Equal(t, policy.Restart, d.Action, n)
		require.InDelta(t, want, d.Delay, 1000, n)
		require.Contains(t, d.Reason, "exited with code 3")
	}
}

func TestAWorkerGivesUpAtTheLimit(t *testing.T) {
	require.Equal(t, policy.Restart, recovery.Next(9, true, "x", 0).Action)
	for _, n := range []int{10, 11, math.MaxInt} {
		d := recovery.Next(n, true, "exited with code 3", 0)
		require.Equal(t, policy.GiveUp, d.Action)
		require.Zero(t, d.Delay)
		require.Contains(t, d.Reason, "recovery.max_consecutive_failures")
		require.Contains(t, d.Reason, "exited with code 3")
	}
	once := recovery
	once.MaxConsecutiveFailures = 1
	require.Equal(t, policy.GiveUp, once.Next(1, true, "x", 0).Action)
	never := recovery
	never.MaxConsecutiveFailures = 0
	require.Equal(t, policy.Restart, never.Next(math.MaxInt, true, "x", 0).Action)
}

func TestBackoffReasonsReadAsSentences(t *testing.T) {
	require.Equal(t, "Restarting in 2.7s (failure 5 of 10): host lost", recovery.Next(5, true, "host lost", 0.5).Reason)
	require.Equal(t, "Restarting immediately (failure 1 of 10): unknown cause", recovery.Next(1, true, "", 0.5).Reason)
	require.Equal(t, "Gave up after 10 failures in a row (recovery.max_consecutive_failures): host lost",
		recovery.Next(10, true, "host lost", 0).Reason)
}

func TestBackoffStaysWithinItsBoundsWhateverTheSettings(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	odd := []float64{0, -1, 1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 0.5}
	for range 5_000 {
		r := policy.Recovery{
			BackoffInitial:    spec.Duration(time.Duration(draw.Int64N(math.MaxInt64) >> draw.IntN(63))),
			BackoffMax:        spec.Duration(time.Duration(draw.Int64N(math.MaxInt64) >> draw.IntN(63))),
			BackoffMultiplier: draw.Float64() * 5,
		}
		random := draw.Float64()
		if draw.IntN(4) == 0 {
			r.BackoffMultiplier, random = odd[draw.IntN(len(odd))], odd[draw.IntN(len(odd))]
		}
		n := draw.IntN(math.MaxInt) >> draw.IntN(63)
		d := r.Next(n, true, "x", random).Delay
		require.GreaterOrEqual(t, d, time.Duration(0), "%+v %d %v", r, n, random)
		require.LessOrEqual(t, float64(d), math.Min(float64(r.BackoffMax)*1.1000001+1, math.MaxInt64), "%+v %d %v", r, n,
			random)
	}
}

func TestJitterSpreadsBackoffByATenthEitherWay(t *testing.T) {
	low, middle, high := recovery.Next(2, true, "x", 0).Delay, recovery.Next(2, true, "x", 0.5).Delay, recovery.Next(2,
		true, "x", 0.999999).Delay
	require.InDelta(t, 90*time.Millisecond, low, 1000)
	require.InDelta(t, 100*time.Millisecond, middle, 1000)
	require.InDelta(t, 110*time.Millisecond, high, 1000)
	require.InDelta(t, 66*time.Second, recovery.Next(9, true, "x", 0.999999).Delay, float64(time.Millisecond))
}

func TestAGoodLifeClearsTheCountOfFailures(t *testing.T) {
	for _, c := range []struct {
		previous int
		healthy  time.Duration
		want     int
	}{
		{0, 0, 1}, {3, 0, 4}, {3, 59 * time.Second, 4}, {3, time.Minute, 1}, {9, time.Hour, 1}, {-1, 0, 1},
		{math.MaxInt, 0, math.MaxInt},
	} {
		require.Equal(t, c.want, recovery.CountFailure(c.previous, c.healthy), "%+v", c)
	}
	at0 := recovery
	at0.HealthyReset = 0
	require.Equal(t, 4, at0.CountFailure(3, 0), "a worker that was never ready has not proved anything")
	require.Equal(t, 1, at0.CountFailure(3, 1))
}

func TestALongerLifeCostsNoMoreThanTheFirstBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 0, 2: 100 * time.Millisecond, 3: 100 * time.Millisecond,
		9: 100 * time.Millisecond} {
		d := recovery.Next(n, false, "killed by SIGKILL", 0.5)
		require.Equal(t, policy.Restart, d.Action, n)
		require.InDelta(t, want, d.Delay, 1000, n)
	}
	require.Equal(t, policy.GiveUp, recovery.Next(10, false, "killed by SIGKILL", 0).Action, "it counts nevertheless")
	slow := recovery
	slow.BackoffInitial = spec.Duration(2 * time.Second)
	require.InDelta(t, 2*time.Second, slow.Next(5, false, "x", 0.5).Delay, 1000)
}

func TestWhatFollowsAnEndDependsOnTheMode(t *testing.T) {
	for _, c := range []struct {
		mode    string
		outcome lifecycle.State
		short   bool
		want    policy.Action
	}{
		{"", lifecycle.Finished, false, policy.Restart}, // as before there were modes
		{spec.RestartAlways, lifecycle.Finished, false, policy.Restart},
		{spec.RestartAlways, lifecycle.Finished, true, policy.Watch}, // a failure
		{spec.RestartAlways, lifecycle.Failed, false, policy.Watch},
		{spec.RestartAlways, lifecycle.Killed, false, policy.Watch},
		{spec.RestartOnFailure, lifecycle.Finished, false, policy.Rest},
		{spec.RestartOnFailure, lifecycle.Finished, true, policy.Rest},
		{spec.RestartOnFailure, lifecycle.Failed, false, policy.Watch},
		{spec.RestartNever, lifecycle.Finished, false, policy.Rest},
		{spec.RestartNever, lifecycle.Failed, true, policy.Rest},
		{spec.RestartNever, lifecycle.Killed, false, policy.Rest},
	} {
		d := policy.Recovery{Restart: c.mode}.AfterEnd(c.outcome, c.short, "exited with code 0")
		require.Equal(t, c.want, d.Action, "%+v", c)
		require.Contains(t, d.Reason, "exited with code 0")
		if c.want == policy.Rest {
			require.Contains(t, d.Reason, "recovery.restart")
		}
	}
}

func TestOnlyLivesOfLessThanASecondHaveAProbation(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 0, 1: time.Second / 2, 2: time.Second / 2, 3: time.Second / 2, 4: 900 * time.Millisecond,
		5: 2700 * time.Millisecond, 6: 8100 * time.Millisecond, 7: 15 * time.Second, 100: 15 * time.Second,
	} {
		require.InDelta(t, want, recovery.Probation(n, true), 1000, "after %d failures", n)
		require.Zero(t, recovery.Probation(n, false), "after %d failures", n)
	}
	require.True(t, recovery.IsShortLived(0))
	require.True(t, recovery.IsShortLived(999*time.Millisecond))
	require.False(t, recovery.IsShortLived(time.Second))
	quick := recovery
	quick.HealthyReset = spec.Duration(500 * time.Millisecond)
	require.False(t, quick.IsShortLived(500*time.Millisecond), "what counts as healthy is not short")
}
