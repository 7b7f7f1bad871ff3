package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAHealthyLifeResetsTheCountOfFailuresHoweverItEnds(t *testing.T) {
	s := newWorkerEnv(t)
	for i := int64(1); i <= 5; i++ {
		s.watchScript[i] = crash(10 * time.Millisecond)
	}
	s.watchScript[6] = finding(2*time.Minute, api.CauseUptime, "up for 2m")
	s.watchScript[7] = crash(10 * time.Second)
	s.At(30*time.Second, func() { require.Equal(t, 5, s.metrics().ConsecutiveFailures) })
	s.At(100*time.Second, func() { require.Zero(t, s.metrics().ConsecutiveFailures, "healthy for healthy_reset") })
	s.At(160*time.Second, func() {
		s.ready(8)
		require.Equal(t, 1, s.metrics().ConsecutiveFailures)
	})
	s.runThrough(standalone())
}
