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

func TestTheAddressOfTheWebUIHasNoSecret(t *testing.T) {
	// pages link to it
	for _, address := range []string{"https://s3cret@temporal.example.com", "ftp://me:s3cret@h", "//h/?token=s3cret"} {
		err := (&Config{HostID: "h", StateDir: t.TempDir(), TemporalUI: address}).complete()
		require.ErrorContains(t, err, "--temporal-ui is ")
		require.ErrorContains(t, err, "(hidden)")
		require.NotContains(t, err.Error(), "s3cret")
	}
}
