package lease

import (
	"testing"

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
