package host

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/tempool/tempool/api"
)

var kept = []api.Process{{Worker: "p/0", Incarnation: 1}}

// recordEnds records each end of an epoch that the fleet is notified of.
func (f *fleet) recordEnds() *[]api.EndEpochRequest {
	all := &[]api.EndEpochRequest{}
	f.env.RegisterActivityWithOptions(func(_ context.Context, r api.EndEpochRequest) error {
		*all = append(*all, r)
		return nil
	}, activity.RegisterOptions{Name: api.ActivityEndEpoch})
	return all
}

func TestTheNextAgentInheritsTheProcessesThatWereKept(t *testing.T) {
	f := newFleet(t)
	ends := f.recordEnds()
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	f.At(time.Minute, func() { f.leaveKeeping(1) })
	f.At(time.Minute+time.Second, func() {
		require.Equal(t, api.HostKeeping, f.status().State)
		require.Len(t, *ends, 1)
		require.Nil(t, (*ends)[0].NextAgent)
	})
	elsewhere := f.joinAt(time.Minute+time.Second, api.JoinRequest{Instance: "c", StateID: "elsewhere"})
	next := f.joinAt(2*time.Minute, api.JoinRequest{Instance: "b", StateID: "disk", Kept: kept})
	f.At(3*time.Minute, func() {
		require.Equal(t, api.HostUp, f.status().State)
		require.Len(t, *ends, 2)
		require.Equal(t, &api.NextAgent{Epoch: 2}, (*ends)[1].NextAgent)
		require.Equal(t, int64(1), (*ends)[1].Epoch)
		f.leave(2)
	})
	require.NoError(t, f.run(Run{}))
	require.ErrorContains(t, elsewhere.Rejected, "is held by agent a")
	require.Equal(t, granted(2), next)
}

func TestWorkersAreNotifiedWhenNoAgentInheritsTheirProcesses(t *testing.T) {
	f := newFleet(t)
	ends := f.recordEnds()
	f.joinAt(0, api.JoinRequest{Instance: "a", StateID: "disk"})
	f.At(time.Minute, func() { f.leaveKeeping(1) })
	f.At(time.Minute+keepTime+time.Second, func() {
		require.Equal(t, api.HostLeft, f.status().State)
		require.Len(t, *ends, 2)
		require.Empty(t, (*ends)[1].Kept)
	})
	require.NoError(t, f.run(Run{}))
}
