package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// numbers are the numbers of the workers that are to stay.
func (p *fakePool) numbers() (numbers []int) {
	for _, w := range p.status().Workers {
		if !w.Removing {
			numbers = append(numbers, w.Slot)
		}
	}
	return numbers
}

func TestScaleDownTakesTheWorkersThatAreMissedLeast(t *testing.T) {
	throughRuns(t, []int{0, 1, 2, 3, 5}, func(t *testing.T, p *fakePool) {
		p.leases = map[int]bool{0: false, 1: false, 3: true, 5: true}
		p.At(5*time.Second, func() { p.workers[2].rest(lifecycle.Failed, "gave up") })
		p.At(5*time.Second, func() { p.workers[4].report(lifecycle.Degraded) })
		p.UpdateAt(10*time.Second, api.UpdateScale, api.ScaleRequest{Size: 4})
		p.At(20*time.Second, func() { require.Equal(t, []int{0, 1, 3, 5}, p.numbers(), "workers out of service go first") })
		lease := p.Begin.Add(time.Hour).UnixMilli() // the number of the last one of worker 0, more than the clock's
		p.At(25*time.Second, func() { p.workers[0].entry.LeaseSeq = lease })
		p.UpdateAt(30*time.Second, api.UpdateScale, api.ScaleRequest{Size: 2})
		p.At(40*time.Second, func() {
			require.Equal(t, []int{3, 5}, p.numbers(), "then those that no client has leased")
			require.Equal(t, 2, p.open())
		})
		p.UpdateAt(50*time.Second, api.UpdateScale, api.ScaleRequest{Size: 7})
		p.At(time.Minute, func() {
			require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, p.numbers(), "new workers get the vacant numbers")
			require.EqualValues(t, 1, p.workers[3].entry.Incarnation)
			require.Greater(t, p.workers[0].entry.Incarnation, int64(1), "which are not used twice")
			require.GreaterOrEqual(t, p.workers[0].run.LeaseSeq, lease, "nor those of leases")
		})
		p.At(65*time.Second, func() { p.setLeases(nil) })
		p.UpdateAt(70*time.Second, api.UpdateScale, api.ScaleRequest{Size: 3})
		p.At(80*time.Second, func() { require.Len(t, p.numbers(), 3, "it scales down even while nobody answers") })
		p.runUntil(2*time.Minute, poolOf(6))
		require.Zero(t, p.open())
	})
}
