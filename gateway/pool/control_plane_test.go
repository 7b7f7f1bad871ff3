package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutageFencesAfterFenceAfter(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	m := &controlPlaneMonitor{fenceAfter: time.Minute, began: began}
	require.False(t, m.fenced(began.Add(time.Hour)), "no check has failed yet")
	m.answered(began.Add(time.Hour))
	require.True(t, m.failed())
	require.False(t, m.failed(), "the outage has begun before")
	require.False(t, m.fenced(began.Add(time.Hour+59*time.Second)))
	require.True(t, m.fenced(began.Add(time.Hour+time.Minute)))
	require.Equal(t, time.Minute, m.outage(began.Add(time.Hour+time.Minute)))
	require.True(t, m.answered(began.Add(2*time.Hour)))
	require.Zero(t, m.outage(began.Add(3*time.Hour)))
}
