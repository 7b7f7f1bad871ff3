package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
)

func TestAStartOnAHostWithoutDescriptorsIsNoFailureOfTheProgram(t *testing.T) {
	h, r := sleepingHost(t)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	restore := func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }
	t.Cleanup(restore)
	h.Admit = func(context.Context, api.StartRequest) error {
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}) // those are in use
	}
	exhausted := 0
	h.Exhausted = func() { exhausted++; restore() }
	_, err := executeStart(h, r)
	failure := activities.RequireNonRetryable(t, err, api.CodeNoWorkers) // the worker looks for a host with resources
	require.Contains(t, failure.Message(), "host h cannot start the process")
	require.Contains(t, failure.Message(), "this host is out of resources for another process")
	require.Equal(t, 1, exhausted)
}
