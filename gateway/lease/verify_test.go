package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestConfirmComparesLeaseWithWorkflowState(t *testing.T) {
	ref := api.LeaseRef{Pool: "p", Slot: 0, Incarnation: 2, Seq: 5}
	id := "p.0.2.5"
	for name, c := range map[string]struct {
		state api.WorkerState
		code  api.Code
	}{
		"held":          {api.WorkerState{LeaseSeq: 5, Lease: &api.Lease{ID: id}}, ""},
		"superseded":    {api.WorkerState{LeaseSeq: 6, Lease: &api.Lease{ID: "p.0.2.6"}}, api.CodeLeaseFenced},
		"returned":      {api.WorkerState{LeaseSeq: 5}, api.CodeLeaseFenced},
		"never granted": {api.WorkerState{LeaseSeq: 4}, api.CodeLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.code, api.CodeOf(Confirm(id, ref, c.state))) })
	}
}

// What the clock shows says when a lease ends that somebody else took, unless the workflow still confirms it then.
func TestALeaseThatTheWorkflowConfirmsHasNotEndedByAClockThatWasSetBack(t *testing.T) {
	var clock Clock
	asked, temporal := time.Now(), time.Unix(1_000_000, 0)
	lease := api.Lease{ExpiresAt: temporal.Add(30 * time.Second), TTLMS: 30_000}
	clock.Observe(temporal.Add(10*time.Second), asked)
	require.Equal(t, asked.Add(20*time.Second), clock.ExpiryOf(lease, asked))
	clock.Observe(temporal.Add(time.Hour), asked)
	clock.Observe(temporal, asked) // it was set back
	require.Equal(t, asked.Add(30*time.Second), clock.ExpiryOf(lease, asked))
}
