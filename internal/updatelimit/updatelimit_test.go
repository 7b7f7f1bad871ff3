package updatelimit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNinthUpdateOfAWorkflowWaitsForARelease(t *testing.T) {
	l := New()
	var releases []func()
	for range perShard {
		release, err := l.Acquire(t.Context(), "w")
		require.NoError(t, err)
		releases = append(releases, release)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Acquire(ended, "w")
	require.ErrorIs(t, err, context.Canceled)
	releases[0]()
	release, err := l.Acquire(t.Context(), "w")
	require.NoError(t, err)
	release()
}
