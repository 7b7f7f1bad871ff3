package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// What an earlier release did in a run must be done again when its history is replayed, also with the reports of workers that had a newer release.

func TestARolloutOfAnEarlierReleaseStartsAWorkerThatWasStoppedMeanwhile(t *testing.T) {
	p := newFakePool(t)
	p.earlier = []string{"rollout-overruled"}
	p.updateAt(10*time.Second, api.UpdateRestart, api.RestartRequest{Reason: "new moon"})
	p.At(10*time.Second+stepDuration/2, func() {
		require.True(t, p.workers[0].restarting)
		p.workers[1].stopDirectly()
	})
	p.At(time.Minute, func() {
		require.Equal(t, []string{"0 ready #2 v1", "1 ready #2 v1"}, slotsOf(p.status()))
	})
	p.stopAt(2 * time.Minute)
	p.run(poolOf(2))
}

func TestAFailedSignalOfAnEarlierReleaseCountsForTheNextWorkflowOfItsSlot(t *testing.T) {
	p := newFakePool(t)
	p.earlier = []string{"undelivered-to-earlier"}
	number := 1
	p.At(10*time.Second, func() {
		p.slowFailures = 5 * time.Second
		p.workers[number].exit("terminated")
		p.update(api.UpdateRestart, api.RestartRequest{Worker: &number})
	})
	p.At(14*time.Second, func() { require.False(t, p.status().Workers[number].Gone) })
	p.At(time.Minute, func() {
		require.True(t, p.status().Workers[number].Gone)
		p.workers[number].exit("terminated")
	})
	p.stopAt(2 * time.Minute)
	p.run(poolOf(2))
}
