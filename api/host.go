package api

import (
	"strconv"
	"time"
)

// The workflow of a host, its messages and its activity.
const (
	WorkflowHost = "Host"

	UpdateJoin      = "join"
	UpdateLeave     = "leave"
	UpdateDrainHost = "drain"

	// ActivityHostLiveness runs on HostEpochQueue for as long as the agent of that epoch lives; its heartbeat is the
	// host's.
	ActivityHostLiveness = "HostLiveness"
	// ActivityDrainHost has the agent of an epoch take no starts, or take them again; it runs on HostEpochQueue.
	ActivityDrainHost = "DrainHost"
	// ActivityEndEpoch notifies the workers of ended epochs; any agent runs it, from SweeperQueue.
	ActivityEndEpoch = "EndEpoch"
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
	HostUp HostState = "up" // its agent heartbeats
	// its agent was silent for HostHeartbeatTimeout; lost after HostGrace unless it joins again
	HostSuspect HostState = "suspect"
	HostLost    HostState = "lost"    // its agent did not join again in time
	HostLeft    HostState = "left"    // its agent shut down gracefully
	HostKeeping HostState = "keeping" // its agent shut down, and its processes wait for the next one
)

// Alive reports whether the host's agent may still run.
func (s HostState) Alive() bool { return s == HostUp || s == HostSuspect }

// JoinRequest announces an agent to the workflow of its host.
type JoinRequest struct {
	// Instance is random and new with each start of an agent; a join that is repeated has the same one.
	Instance string `json:"instance"`
	// StateID is the id of the agent's state folder, whose lock the agent holds: agents on one folder follow each
	// other.
	StateID string `json:"state_id"`
	// Epoch is the newest one that this instance had; 0 before its first. Last is the newest that an agent on this state
	// folder had, which the workflow does not know if it was ended from outside; 0 is not known.
	Epoch    int64    `json:"epoch,omitempty"`
	Last     int64    `json:"last,omitempty"`
	Labels   []string `json:"labels,omitempty"`
	Capacity int      `json:"capacity,omitempty"`
	Endpoint string   `json:"endpoint,omitempty"`
	Machine  string   `json:"machine,omitempty"` // for people: which machine, boot and process
	// Kept are the processes that this agent has taken over from the one before.
	Kept []Process `json:"kept,omitempty"`
	// Usage is what the agent before had last reported of its processes.
	Usage []ProcessUsage `json:"usage,omitempty"`
}

// JoinResult is the epoch under which an agent was admitted.
type JoinResult struct {
	Epoch    int64 `json:"epoch"`
	Draining bool  `json:"draining,omitempty"` // see HostStatus
}

// DrainHostRequest has a host take no starts of workers until a request without a reason. Its workers stay.
type DrainHostRequest struct {
	Reason string `json:"reason,omitempty"`
}

// LeaveRequest ends an epoch when its agent shuts down.
type LeaveRequest struct {
	Epoch int64 `json:"epoch"`
	// Kept are processes that wait for the next agent for KeepMS.
	Kept   []Process `json:"kept,omitempty"`
	KeepMS int64     `json:"keep_ms,omitempty"`
	// Usage is that of the processes which live on, or have not reported their end.
	Usage []ProcessUsage `json:"usage,omitempty"`
}

// LivenessRequest is the input of ActivityHostLiveness.
type LivenessRequest struct {
	Epoch    int64     `json:"epoch"`
	Instance string    `json:"instance"`
	At       time.Time `json:"at"` // the workflow's time
}

// HostHeartbeat is the detail of each heartbeat of ActivityHostLiveness: the processes of the host that are ready.
type HostHeartbeat struct {
	// At is LivenessRequest.At and the time since then by the agent's monotonic clock: no clocks of two machines are
	// compared.
	At        time.Time       `json:"at"`
	Processes []ProcessReport `json:"processes,omitempty"`
	// Waiting counts, by pool, the calls and the clients that wait for a worker at its gateway. Pools without any are
	// left out.
	Waiting map[string]int `json:"waiting,omitempty"`
	// Figures are those of the last minute at its gateway, by pool. Pools without any are left out, and of a great many
	// pools those with the fewest calls.
	Figures map[string]Figures `json:"figures,omitempty"`
	// MCPSessions counts, by pool, the sessions of MCP clients at its gateway. Pools without any are left out.
	MCPSessions map[string]int `json:"mcp_sessions,omitempty"`
	// Agent is the agent's report on itself; nil from one that reports nothing.
	Agent *AgentReport `json:"agent,omitempty"`
}

// Used is what each process has served.
func (h HostHeartbeat) Used() (all []ProcessUsage) {
	for _, p := range h.Processes {
		all = append(all, ProcessUsage{Process: p.Process, Usage: p.Usage})
	}
	return all
}

// Usage is what the processes use together, as last sampled, and how many each pool has.
func (h HostHeartbeat) Usage() (memoryBytes int64, cpuPercent float64, pools map[string]int) {
	pools = map[string]int{}
	for _, p := range h.Processes {
		if pool, _, err := ParseWorkerName(p.Worker); err == nil {
			pools[pool]++
		}
		if p.Sample != nil {
			memoryBytes += p.Sample.MemoryBytes
			cpuPercent += p.Sample.CPUPercent
		}
	}
	return memoryBytes, cpuPercent, pools
}

// AgentReport is an agent's report on itself and its machine.
type AgentReport struct {
	// Endpoint is the base URL of its gateway.
	Endpoint string `json:"endpoint"`
	// Socket is the path of its gateway's Unix socket.
	Socket string `json:"socket,omitempty"`
	// Access is how clients over TCP prove who they are.
	Access   AgentAccess `json:"access"`
	Epoch    int64       `json:"epoch"`
	Version  string      `json:"version"`  // of its program
	Platform string      `json:"platform"` // such as linux/amd64
	Hostname string      `json:"hostname"`
	Labels   []string    `json:"labels"`
	Capacity int         `json:"capacity"`
	// Clock is the time of day of its machine when it reported.
	Clock time.Time `json:"clock"`
	// Root says that it runs as root, and so do its workers without a pool.user.
	Root bool `json:"root,omitempty"`
	// Cgroups are the controllers that enforce limits; NoCgroups is why there are none.
	Cgroups   []string `json:"cgroups,omitempty"`
	NoCgroups string   `json:"no_cgroups,omitempty"`
	// KeepsProcesses says that it leaves its processes to the next agent when it stops.
	KeepsProcesses bool `json:"keeps_processes,omitempty"`
	// Draining says that the host takes no starts of workers, see HostStatus.
	Draining bool `json:"draining,omitempty"`
	// OpenFiles is how many files it may have open; 0 is not known.
	OpenFiles int64 `json:"open_files,omitempty"`
	// DiskFreeBytes and DiskTotalBytes are those of the disk with the state folder; 0 of 0 is not known. Nothing is free
	// without a free inode, or if it is read-only.
	DiskFreeBytes  int64 `json:"disk_free_bytes"`
	DiskTotalBytes int64 `json:"disk_total_bytes"`
}

// AgentAccess is how clients prove who they are at a gateway's TCP listener.
type AgentAccess string

// The ways of AgentAccess.
const (
	AccessTokens       AgentAccess = "tokens"
	AccessCertificates AgentAccess = "certificates"
	AccessOpen         AgentAccess = "open"   // not at all: every program of the machine may call
	AccessSocket       AgentAccess = "socket" // there is no TCP listener
)

// ProcessReport is the usage and health of one process.
type ProcessReport struct {
	Process
	// Usage counts the calls of this incarnation on its host so far.
	Usage    Usage   `json:"usage,omitzero"`
	InFlight int     `json:"in_flight,omitempty"`
	Sample   *Sample `json:"sample,omitempty"`
	// Number is that of the process within its incarnation, from 1: isolated workers have many.
	Number int64 `json:"number,omitempty"`
	// Key is the key that it serves (isolation.by = "key"); nil for none.
	Key *KeyUse `json:"key,omitempty"`
	// MCPClient is the MCP client that it serves alone (mcp.mode = "session"); nil for none.
	MCPClient *MCPClient `json:"mcp_client,omitempty"`
	// UptimeMS is the time since it became ready.
	UptimeMS int64 `json:"uptime_ms,omitempty"`
	// Lease is the lease on it as far as the gateway knows.
	Lease *Lease `json:"lease,omitempty"`
	// Assessment is nil if nothing is graded.
	Assessment *Assessment `json:"assessment,omitempty"`
	// MemoryLimitBytes and CPULimitCores are the limits in effect, 0 for none.
	MemoryLimitBytes int64   `json:"memory_limit_bytes,omitempty"`
	CPULimitCores    float64 `json:"cpu_limit_cores,omitempty"`
}

// KeyUse says whose a process is, as far as anybody but its host may know.
type KeyUse struct {
	// Key is the begin of the key's hash.
	Key   string    `json:"key"`
	Since time.Time `json:"since"`
}

// MCPClient says whose a session of an MCP client is.
type MCPClient struct {
	Principal string    `json:"principal"`
	Since     time.Time `json:"since"` // the session's begin
}

// ReleaseResult says which process ends for tempool workers release, after its calls.
type ReleaseResult struct {
	Worker      string `json:"worker"`
	Incarnation int64  `json:"incarnation"`
	Process     int64  `json:"process"` // its number within the incarnation
	// Key is what it served; nil if it is clean, and stays.
	Key      *KeyUse `json:"key"`
	InFlight int     `json:"in_flight"`
}

// ShownKey is the display form of a key's hash.
func ShownKey(hash string) string { return hash[:min(len(hash), 8)] }

// EndEpochRequest is the input of ActivityEndEpoch: all epochs of the host up to Epoch have ended.
type EndEpochRequest struct {
	Host   string `json:"host"`
	Epoch  int64  `json:"epoch"`
	Reason string `json:"reason"`
	// Usage is what the last agent had reported of its processes.
	Usage []ProcessUsage `json:"usage,omitempty"`
	// Kept are processes that keep running. Their workers are notified of NextAgent; without one they are not notified
	// yet.
	Kept      []Process  `json:"kept,omitempty"`
	NextAgent *NextAgent `json:"next_agent,omitempty"`
}

// NextAgent is the agent that has taken over processes of an ended epoch.
type NextAgent struct {
	Epoch    int64  `json:"epoch"`
	Endpoint string `json:"endpoint,omitempty"` // of its gateway
}

// ProcessUsage is the usage of one incarnation.
type ProcessUsage struct {
	Process
	Usage Usage `json:"usage"`
}

// EpochEnded is the message of SignalEpochEnded. It concerns a worker whose process an agent of Host started under
// Epoch or an earlier one.
type EpochEnded struct {
	Host   string `json:"host"`
	Epoch  int64  `json:"epoch"`
	Reason string `json:"reason"`
	// Used is what the agent had last reported of the worker's incarnations.
	Used []ProcessUsage `json:"used,omitempty"`
	// Kept are the worker's incarnations that NextAgent has taken over.
	Kept      []int64    `json:"kept,omitempty"`
	NextAgent *NextAgent `json:"next_agent,omitempty"`
}

// UsageOf is what the agent had last reported of an incarnation; nil if it had reported nothing.
func (e EpochEnded) UsageOf(incarnation int64) *Usage {
	for _, u := range e.Used {
		if u.Incarnation == incarnation {
			return &u.Usage
		}
	}
	return nil
}

// HostStatus answers the query status of a host's workflow.
type HostStatus struct {
	Host     string    `json:"host"`
	Epoch    int64     `json:"epoch"`
	JoinedAt time.Time `json:"joined_at,omitzero"` // when the epoch began
	Instance string    `json:"instance"`
	State    HostState `json:"state"`
	Since    time.Time `json:"since"`
	Labels   []string  `json:"labels,omitempty"`
	Capacity int       `json:"capacity,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Machine  string    `json:"machine,omitempty"`
	Draining string    `json:"draining,omitempty"` // why the host takes no starts; empty if it takes them
}
