package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// failing is a breaker after n failed starts at noon.
func failing(n int) policy.Breaker {
	var b policy.Breaker
	for i := range n {
		b = b.Record(fmt.Sprintf("w/%d", i), true, noon)
	}
	return b
}

func TestTheBreakerOpensWhenHalfOfTheStartsFail(t *testing.T) {
	for _, c := range []struct {
		ok, failed int
		open       bool
	}{{0, 4, false}, {0, 5, true}, {5, 5, true}, {6, 5, false}, {100, 99, false}, {100, 100, true}} {
		var b policy.Breaker
		for range c.ok {
			b = b.Record("w/0", false, noon)
		}
		for range c.failed {
			require.False(t, b.Open())
			b = b.Record("w/0", true, noon)
		}
		require.Equal(t, c.open, b.Open(), "%+v", c)
	}
}

func TestFailuresOfMoreThanAMinuteAgoAreForgotten(t *testing.T) {
	b := failing(4)
	require.True(t, b.Record("w/9", true, noon.Add(59*time.Second)).Open())
	later := b.Record("w/9", true, noon.Add(time.Minute))
	require.False(t, later.Open())
	require.Len(t, later.Counts, 1)
	require.Len(t, b.Counts, 1, "the breaker it came from is as it was")
	require.Equal(t, 4, b.Counts[0].Failed)
}

func TestAnOpenBreakerLetsOneStartTry(t *testing.T) {
	b := failing(5)
	b, wait := b.Ask("w/1", noon.Add(10*time.Second))
	require.Equal(t, 20*time.Second, wait)

	b, wait = b.Ask("w/1", noon.Add(30*time.Second))
	require.Zero(t, wait)
	b, wait = b.Ask("w/2", noon.Add(31*time.Second))
	require.Positive(t, wait)
	b, wait = b.Ask("w/1", noon.Add(32*time.Second))
	require.Zero(t, wait)

	require.Equal(t, b, b.Record("w/3", false, noon.Add(33*time.Second)), "a start from before says nothing")

	closed := b.Record("w/1", false, noon.Add(40*time.Second))
	require.Equal(t, policy.Breaker{}, closed)
	_, wait = closed.Ask("w/2", noon.Add(41*time.Second))
	require.Zero(t, wait)
}

func TestABreakerIsSmallAndSurvivesJSON(t *testing.T) {
	var b policy.Breaker
	for i := range 5_000 {
		b = b.Record("w/0", i%10 == 0, noon.Add(time.Duration(i)*100*time.Millisecond))
		require.LessOrEqual(t, len(b.Counts), 61)
	}
	open, _ := failing(5).Ask("w/1", noon.Add(time.Minute))
	for _, b := range []policy.Breaker{{}, b, open} {
		text, err := json.Marshal(b)
		require.NoError(t, err)
		var back policy.Breaker
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, b, back)
	}
}

func TestTheBreakerWaitsForAWorkerThatRetriesAlone(t *testing.T) {
	b, wait := failing(5).Ask("w/1", noon.Add(30*time.Second))
	require.Zero(t, wait)
	later := noon.Add(time.Hour)
	b = b.Record("w/1", true, later)
	require.Equal(t, "w/1", b.Trial, "its failures are its own")
	_, wait = b.Ask("w/2", later)
	require.Positive(t, wait)
	require.False(t, b.Record("w/1", false, later).Open())

	b = b.GaveUp(later)
	_, wait = b.Ask("w/2", later)
	require.Equal(t, 30*time.Second, wait)
	b, wait = b.Ask("w/2", later.Add(30*time.Second))
	require.Zero(t, wait)
	require.Equal(t, "w/2", b.Trial)
}
