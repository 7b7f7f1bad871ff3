package worker

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool/api"
)

// refused is a Temporal worker that does not start.
type refused struct {
	sdkworker.Worker
	err error
}

func (r refused) Start() error { return r.err }

func TestAnAgentInAMissingNamespaceSaysWhatToDo(t *testing.T) {
	err := startPolling(refused{err: fmt.Errorf("failed reaching server: %w", serviceerror.NewNamespaceNotFound("nope"))})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(
		t, err, `no namespace "nope"; create it with: temporal operator namespace create --retention 72h nope; `+
			`or set --namespace`)
}
