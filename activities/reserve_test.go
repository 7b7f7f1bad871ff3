package activities

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestReserveWorkerTakesAWorkerThatNobodyUses(t *testing.T) {
	holders := map[int]string{0: "somebody", 1: "", 2: "", 3: "somebody else"}
	var asked []int
	inFlight := map[int]int{}
	grants, attempts := map[int]bool{}, map[string]bool{}
	roster := &Roster{
		State: func(_ context.Context, _ string, slot int) (s api.WorkerState, err error) {
			holder, known := holders[slot]
			if !known {
				return s, errors.New("no answer")
			}
			if holder != "" {
				s.Lease = &api.Lease{Holder: holder}
			}
			return s, nil
		},
		InFlight: func(context.Context, string) (map[int]int, error) { return inFlight, nil },
		Checkout: func(_ context.Context, pool string, slot int, r api.CheckoutRequest) (*api.Lease, error) {
			require.Nil(t, r.Validate())
			require.Equal(t, "pool/p", r.Holder)
			require.NotEmpty(t, r.AttemptID, "a lease that nobody gets the answer for expires, and costs the process")
			require.NotContains(t, attempts, r.AttemptID)
			attempts[r.AttemptID] = true
			asked = append(asked, slot)
			if !grants[slot] {
				return nil, api.Errorf(api.CodeBusy, "%s is busy", api.WorkerName(pool, slot))
			}
			return &api.Lease{ID: api.LeaseID(pool, slot, 1, 7)}, nil
		},
	}
	ordered, err := roster.ReserveWorker(t.Context(), api.ReserveWorkerRequest{Pool: "p", Slots: []int{0, 1, 2, 3, 4}})
	require.NoError(t, err)
	require.Equal(t, api.ReserveWorkerResult{Order: []int{2, 1, 4, 3, 0}}, ordered)
	require.Empty(t, asked, "nothing is leased without a request ID")
	reserve := func() api.ReserveWorkerResult {
		asked = nil
		r, err := roster.ReserveWorker(t.Context(),
			api.ReserveWorkerRequest{Pool: "p", Slots: []int{0, 1, 2, 3, 4}, RequestID: "r"})
		require.NoError(t, err)
		return r
	}
	grants[1] = true
	require.Equal(t, api.ReserveWorkerResult{Slot: 1, LeaseID: "p.1.1.7"}, reserve())
	require.Equal(t, []int{2, 1}, asked, "the last one that no client has leased comes first")
	inFlight[2] = 1
	require.Equal(t, api.ReserveWorkerResult{Slot: 1, LeaseID: "p.1.1.7"}, reserve())
	require.Equal(t, []int{1}, asked, "calls are in flight on the other one")
	delete(inFlight, 2)
	grants = map[int]bool{}
	require.Contains(t, reserve().Problem, "p/1 is busy")
	require.Equal(t, []int{2, 1}, asked, "one that a client has leased is not asked")
	holders = map[int]string{0: "a", 1: "b"}
	require.Equal(t, "clients have leased all 5 workers in service", reserve().Problem)
	require.Empty(t, asked)
}
