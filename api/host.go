package api

import (
	"strconv"
	"time"
)

// The workflow of a host, its messages and its activity.
const (
	WorkflowHost = "Host"

	UpdateJoin  = "join"
	UpdateLeave = "leave"

	// ActivityHostLiveness runs on HostEpochQueue for as long as the agent of that epoch lives; its heartbeat is the host's.
	ActivityHostLiveness = "HostLiveness"
)

// Liveness of a host.
const (
	// HostHeartbeatInterval is how often an agent heartbeats.
	HostHeartbeatInterval = 4 * time.Second
	// HostHeartbeatTimeout is how long an agent may be silent before its epoch is lost.
	HostHeartbeatTimeout = 12 * time.Second
)

// HostWorkflowID is the ID of the workflow that owns a host id.
func HostWorkflowID(hostID string) string { return "tempool/host/" + hostID }

// HostEpochQueue is the task queue that only the agent of one epoch polls.
func HostEpochQueue(hostID string, epoch int64) string {
	return HostQueue(hostID) + "/" + strconv.FormatInt(epoch, 10)
}

// HostState is the state of a host.
type HostState string

// The states of a host.
const (
	HostUp      HostState = "up"      // its agent heartbeats
	HostSuspect HostState = "suspect" // its liveness ended without a report; lost after HostHeartbeatTimeout unless it joins again
	HostLost    HostState = "lost"    // its agent was silent for HostHeartbeatTimeout
	HostLeft    HostState = "left"    // its agent shut down gracefully
)

// Alive reports whether the host's agent may still run.
func (s HostState) Alive() bool { return s == HostUp || s == HostSuspect }

// JoinRequest announces an agent to the workflow of its host.
type JoinRequest struct {
	// Instance is random and new with each start of an agent; a join that is repeated has the same one.
	Instance string `json:"instance"`
	// Lineage is the id of the agent's state folder, whose lock the agent holds: two agents of one lineage follow each other.
	Lineage string `json:"lineage"`
	// Epoch is the newest one that this instance had; 0 before its first.
	Epoch    int64    `json:"epoch,omitempty"`
	Labels   []string `json:"labels,omitempty"`
	Capacity int      `json:"capacity,omitempty"`
	Endpoint string   `json:"endpoint,omitempty"`
	Machine  string   `json:"machine,omitempty"` // for people: which machine, boot and process
}

// JoinResult is the epoch under which an agent was admitted.
type JoinResult struct {
	Epoch int64 `json:"epoch"`
}

// LeaveRequest ends an epoch when its agent shuts down.
type LeaveRequest struct {
	Epoch int64 `json:"epoch"`
}

// LivenessRequest is the input of ActivityHostLiveness.
type LivenessRequest struct {
	Epoch    int64  `json:"epoch"`
	Instance string `json:"instance"`
}

// HostStatus answers the query status of a host's workflow.
type HostStatus struct {
	Host     string    `json:"host"`
	Epoch    int64     `json:"epoch"`
	Instance string    `json:"instance"`
	State    HostState `json:"state"`
	Since    time.Time `json:"since"`
	Labels   []string  `json:"labels,omitempty"`
	Capacity int       `json:"capacity,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Machine  string    `json:"machine,omitempty"`
}
