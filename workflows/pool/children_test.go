package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/workflows/worker"
)

func TestAWorkerTerminatedByHandIsStartedAnewUnderHigherNumbers(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() {
		p.actors[0].entry.LeaseSeq = 41
		p.actors[0].tell(lifecycle.Ready)
	})
	p.at(6*time.Second, func() { p.actors[0].exit("terminated") })
	p.at(10*time.Second, func() {
		require.Equal(t, []string{"0 ready #3 v1"}, slotsOf(p.status()), "2 may have begun unseen")
	})
	p.stopAt(11 * time.Second)
	p.play(poolOf(1))
	require.Len(t, p.hired, 2)
	require.EqualValues(t, 2, p.hired[1].Machine.Incarnation)
	require.EqualValues(t, 41+lostLeaseSeqs, p.hired[1].LeaseSeq)
}

func TestAWorkerTerminatedByHandWhileItsStartsFailedGoesOnBeyondWhatItDidNotTell(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() { p.actors[0].tell(lifecycle.Pending) })
	p.at(6*time.Second, func() { p.actors[0].exit("terminated") })
	p.stopAt(11 * time.Second)
	p.play(poolOf(1))
	require.Len(t, p.hired, 2)
	require.EqualValues(t, 2+worker.UnreportedIncarnations+policy.MaxTries, p.hired[1].Machine.Incarnation)
}

func TestAChildThatCannotBeStartedIsTriedAgainUnderTheSameNumbers(t *testing.T) {
	p := newTroupe(t)
	p.at(5*time.Second, func() {
		p.actors[0].entry.LeaseSeq = 41
		p.actors[0].tell(lifecycle.Ready)
	})
	p.at(6*time.Second, func() {
		p.refuse = 2
		p.actors[0].exit("terminated")
	})
	p.at(6*time.Second+childRetryDelay-100*time.Millisecond, func() {
		require.Equal(t, 1, p.refused, "not before its time")
		require.Contains(t, p.status().Workers[0].Reason, "could not be started")
	})
	p.at(6*time.Second+childRetryDelay+100*time.Millisecond, func() { require.Equal(t, 2, p.refused) })
	p.at(15*time.Second, func() { require.Equal(t, 1, p.status().Ready) })
	p.stopAt(16 * time.Second)
	p.play(poolOf(1))
	require.Len(t, p.hired, 2)
	require.GreaterOrEqual(t, p.hired[1].Machine.Incarnation, int64(2))
	require.GreaterOrEqual(t, p.hired[1].LeaseSeq, int64(41+lostLeaseSeqs))
}

func TestAPoolWhoseWorkersCannotBeStartedStopsAllTheSame(t *testing.T) {
	p := newTroupe(t)
	p.refuse = 1000
	p.stopAt(5 * time.Second)
	p.play(poolOf(2))
	require.Empty(t, p.hired)
	require.InDelta(t, 6, p.refused, 2)
}
