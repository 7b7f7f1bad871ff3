package api

import "time"

// Who is alive, and what waits for whom. Each time-out is longer than every absence that is legitimate where it
// applies. They are in this order, which TestTheTimeoutsAreInOrder holds.
const (
	// NextHostTimeout is how long a Start beside the present process waits for another host after one that refused it:
	// shorter than that one pauses, which would refuse it again and pause for longer.
	NextHostTimeout = 3 * time.Second
	// HostHeartbeatInterval is how often an agent heartbeats.
	HostHeartbeatInterval = 4 * time.Second
	// HostHeartbeatTimeout is how long an agent may be silent before its host is suspect, and HostGrace how long it is
	// suspect before its epoch is lost.
	HostHeartbeatTimeout = 8 * time.Second
	HostGrace            = 8 * time.Second
	// HeartbeatTimeout is how long an agent may be silent about an activity before Temporal times that out.
	HeartbeatTimeout = 12 * time.Second
	// HostTimeout is how long an activity waits for the agent of a host. It is longer than an agent needs to reconnect
	// after a restart of the Temporal server.
	HostTimeout = 20 * time.Second
	// HostOutageGrace replaces HostGrace after an outage of Temporal itself, during which no agent could heartbeat.
	HostOutageGrace = 20 * time.Second
	// ClaimTimeout is how long the worker of a process that was taken over may take to set what is observed of it. The
	// next agent of the host may take as long to come (process.KeepFor).
	ClaimTimeout = 2 * time.Minute
	// AgentAway is how long an activity about a process that lives waits for an agent. The host's workflow learns sooner
	// of one that is lost; one that has left its processes to the next one takes nothing until that has come.
	AgentAway = 3 * time.Minute
)
