package worker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
)

func TestNoHostHasTheNameUnderWhichOthersReportDemand(t *testing.T) {
	for _, name := range []string{api.DemandOfWorkflows, api.DemandOfClients} {
		require.ErrorContains(t, (&Config{HostID: name}).complete(), "invalid --host-id")
	}
}

func TestACheckFindsWhatTheAgentWouldFailFor(t *testing.T) {
	security := gateway.Security{SocketGroup: "no such group"}
	for want, c := range map[string]Config{
		`--labels has "GPU"`:                          {Labels: []string{"default", "GPU"}},
		`--listen is "127.0.0.1:99999"`:               {Listen: "127.0.0.1:99999"},
		`--socket-group is "no such group"`:           {Security: security},
		"--events-webhook is not a URL":               {Webhook: events.WebhookConfig{URL: "localhost"}},
		`no event type matches "lease"`:               {Webhook: events.WebhookConfig{URL: "http://h", Types: "lease"}},
		"cannot read --events-webhook-token-file":     {Webhook: events.WebhookConfig{URL: "https://h", TokenFile: "none"}},
		"--events-webhook would send its token unenc": {Webhook: events.WebhookConfig{URL: "http://h/?token=x"}},
	} {
		c.HostID, c.StateDir = "h", t.TempDir()
		require.ErrorContains(t, c.Check(), want)
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
