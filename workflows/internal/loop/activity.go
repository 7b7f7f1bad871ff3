package loop

import (
	"time"

	"go.temporal.io/sdk/temporal"
)

// Once is the retry policy of everything whose failure the state machine itself answers.
var Once = &temporal.RetryPolicy{MaximumAttempts: 1}

// HostTimeout is how long work for a host waits to be picked up before the host counts as lost. It has to outlast an
// agent's reconnection after the Temporal server was restarted.
const HostTimeout = 20 * time.Second

// HeartbeatTimeout is how long an agent may be silent before its Watch is tried anew.
const HeartbeatTimeout = 12 * time.Second
