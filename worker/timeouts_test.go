package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

func TestTheTimeoutsAreInOrder(t *testing.T) {
	order := []time.Duration{
		api.NextHostTimeout, minPause, 2 * api.HostHeartbeatInterval, api.HostHeartbeatTimeout, api.HeartbeatTimeout,
		api.HostHeartbeatTimeout + api.HostGrace,
		api.HostTimeout, api.HostOutageGrace, api.HostHeartbeatTimeout + api.HostOutageGrace,
		joinTimeout, process.KeepFor, api.ClaimTimeout,
		api.AgentAway - api.HostOutageGrace,
	}
	require.True(t, slices.IsSorted(order), "%v", order)
	require.Greater(t, api.AgentAway, process.KeepFor+api.HostOutageGrace,
		"an order waits for an agent that may still come")
}
