package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestNoHostHasTheNameUnderWhichOthersReportDemand(t *testing.T) {
	for _, name := range []string{api.DemandOfWorkflows, api.DemandOfClients} {
		require.ErrorContains(t, (&Config{HostID: name}).complete(), "invalid --host-id")
	}
}
