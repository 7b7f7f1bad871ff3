package api

import (
	"fmt"
	"time"

	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/spec"
)

// Process names one incarnation of a worker.
type Process struct {
	Worker      string `json:"worker"`
	Incarnation int64  `json:"incarnation"`
}

// AwaitCapacityResult names a host that had free capacity at that moment.
type AwaitCapacityResult struct {
	Host string `json:"host"`
}

// StartRequest starts an incarnation on the host that takes the task, which refuses one that it has had with
// CodeSuperseded.
type StartRequest struct {
	Process
	Spec spec.Spec `json:"spec"`
	// KeepIncarnations lists older incarnations that stay beside this one; the host first kills every other one of the
	// worker.
	KeepIncarnations []int64 `json:"keep_incarnations,omitempty"`
	// Failures counts the failures in a row before this start; ShortLived says that the newest of them came soon after
	// its start.
	Failures   int  `json:"failures,omitempty"`
	ShortLived bool `json:"short_lived,omitempty"`
	// RunID is the first run of the worker's workflow; see ProcessEvents.
	RunID string `json:"run_id,omitempty"`
	// Rules are those of the process once it is ready, and Replaced feeds the host's metrics; a Watch changes them.
	Rules    WatchRules `json:"rules,omitzero"`
	Replaced Replaced   `json:"replaced,omitzero"`
	// Announce, if set, makes the host report to the pool that the process starts and that it is ready.
	Announce *Announce `json:"announce,omitempty"`
}

// Announce is what a host reports of a worker beyond its process; the counts are as before the start.
type Announce struct {
	// Reason is why the process starts: until it is ready, every view gives the worker's own.
	Reason       string `json:"reason"`
	SpecVersion  int64  `json:"spec_version"`
	LeaseSeq     int64  `json:"lease_seq,omitempty"`
	Starts       int64  `json:"starts,omitempty"`
	StartsFailed int64  `json:"starts_failed,omitempty"`
	Begun        string `json:"begun,omitempty"`
}

// StartResult is a process that has finished its handshake and warm-up.
type StartResult struct {
	Host      string    `json:"host"`
	Epoch     int64     `json:"epoch,omitempty"` // of the agent that started it
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Endpoint  string    `json:"endpoint"`
	Address   string    `json:"address,omitempty"`
	Sample    *Sample   `json:"sample,omitempty"`
	// Rules are those that the host checks the process against.
	Rules WatchRules `json:"rules,omitzero"`
	// Announced says that the host has reported the process to the pool.
	Announced bool `json:"announced,omitempty"`
	// TookMS is the time from spawn to ready, in milliseconds.
	TookMS int64 `json:"took_ms"`
	// Limits names the mechanism that enforces each configured limit, by its key in the section limits: cgroup, rlimit,
	// scheduler, kernel, engine (of containers), gateway, sampler (the agent samples every second), or none if this host
	// cannot enforce it.
	Limits map[string]string `json:"limits,omitempty"`
}

// Reason says that the process is ready, for histories and rosters.
func (r StartResult) Reason() string {
	return fmt.Sprintf("%s on host %s ready after %d ms", ProcessText(r.PID), r.Host, r.TookMS)
}

// ProcessText names what runs an incarnation, for sentences. A worker of kind "function" has no PID.
func ProcessText(pid int) string {
	if pid == 0 {
		return "function"
	}
	return fmt.Sprintf("process %d", pid)
}

// SupersededDetails is the detail of a Start that failed with CodeSuperseded; Newest is the worker's highest
// incarnation on that host.
type SupersededDetails struct {
	Newest int64 `json:"newest"`
}

// StartFailedDetails is the detail of a Start whose process was ready and ended in its probation. Usage are the calls
// that it served.
type StartFailedDetails struct {
	Usage Usage `json:"usage"`
}

// WatchRequest sets what the host observes of an incarnation from now on. The start sets it first: probes, and the
// rules of the StartRequest. With Failures > 0 the next probe runs after DegradedProbeDelay, and its result is reported
// whether it passes or fails.
type WatchRequest struct {
	Process
	Health   spec.Health `json:"health"`
	Failures int         `json:"failures,omitempty"`
	Probe    bool        `json:"probe"` // false while suspended: only the process's exit is observed
	Rules    WatchRules  `json:"rules,omitzero"`
	// Replaced feeds the host's metrics.
	Replaced Replaced `json:"replaced,omitzero"`
}

// Replaced counts the replaced incarnations of a worker by Cause: planned ones, and all others.
type Replaced struct {
	Rotations map[string]int64 `json:"rotations,omitempty"`
	Restarts  map[string]int64 `json:"restarts,omitempty"`
}

// WatchRules are the rules by which a host decides that an incarnation should be replaced; the zero value has none. The
// host reports WatchReplace once; the next Watch sets rules again.
type WatchRules struct {
	// RequestLimit is the number of requests after which to replace the incarnation, jitter included; 0 is never.
	RequestLimit int64 `json:"request_limit,omitempty"`
	// MaxMemoryBytes is for the whole process tree; 0 is none. AutoMemory derives it from the incarnation's own baseline
	// instead.
	MaxMemoryBytes int64 `json:"max_memory_bytes,omitempty"`
	AutoMemory     bool  `json:"auto_memory,omitempty"`
	// Grade replaces the incarnation for a low grade, once it has lived for GradeAfter.
	Grade      bool          `json:"grade,omitempty"`
	GradeAfter spec.Duration `json:"grade_after,omitempty"`
	// Window and Horizon configure the prediction; a Window of 0 disables it. MemoryLimitBytes is the memory not to reach,
	// besides MaxMemoryBytes: limits.memory; 0 is none.
	Window           int           `json:"window,omitempty"`
	Horizon          spec.Duration `json:"horizon,omitempty"`
	MemoryLimitBytes int64         `json:"memory_limit_bytes,omitempty"`
	// Limits replaces the incarnation for exceeding a limit of the spec that only the host's sampler enforces.
	Limits bool `json:"limits,omitempty"`
}

// Assessment grades an incarnation by its newest sample.
type Assessment struct {
	Grade    string   `json:"grade"`
	Score    float64  `json:"score"` // 0 to 100
	Warnings []string `json:"warnings,omitempty"`
	// BaselineBytes is the memory that the program needs, as its first minute after a call has shown; 0 while that is not
	// known.
	BaselineBytes int64 `json:"baseline_bytes,omitempty"`
	// MaxMemoryBytes is the memory at which it is rotated; 0 is none.
	MaxMemoryBytes int64 `json:"max_memory_bytes,omitempty"`
	// CallsPerMinute are the calls of the last minute: those that the program counts as api_calls, else the requests
	// served.
	CallsPerMinute float64 `json:"calls_per_minute,omitempty"`
	// Watch says why the incarnation should be watched closely, and FailsInMS is how long it takes to its limit at the
	// present trend; "" and 0 if prediction sees nothing.
	Watch     string `json:"watch,omitempty"`
	FailsInMS int64  `json:"fails_in_ms,omitempty"`
}

// DegradedProbeDelay separates a failed probe and the next one.
const DegradedProbeDelay = 5 * time.Second

// WatchEvent is what a host has observed of an incarnation.
type WatchEvent string

// What a host observes.
const (
	WatchExited      WatchEvent = "exited"
	WatchProbeFailed WatchEvent = "probe_failed"
	WatchProbePassed WatchEvent = "probe_passed"
	WatchShutdown    WatchEvent = "agent_shutdown"
	WatchUnknown     WatchEvent = "unknown_process" // the host does not know the incarnation
	WatchReplace     WatchEvent = "replace"         // the incarnation should be replaced, for Cause
	WatchUnhealthy   WatchEvent = "unhealthy"       // the program, or its calls, show that it is unhealthy
)

// WatchResult is one observation, also that of a Probe; its Event is empty if there was nothing to report. Exit is set
// for exited and unknown_process.
type WatchResult struct {
	Event  WatchEvent      `json:"event,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Exit   *lifecycle.Exit `json:"exit,omitempty"`
	Sample *Sample         `json:"sample,omitempty"`
	// Cause is set for replace, and for unhealthy if the incarnation should be replaced at once.
	Cause      Cause       `json:"cause,omitempty"`
	Assessment *Assessment `json:"assessment,omitempty"`
	// Usage counts all calls of the incarnation on its host; set for exited.
	Usage *Usage `json:"usage,omitempty"`
}

// ProcessEvent is what a host has observed of one incarnation.
type ProcessEvent struct {
	Incarnation int64 `json:"incarnation"`
	WatchResult
}

// ProcessEvents is the message of SignalProcessEvents, oldest event first. A host repeats it until Temporal has
// accepted it, so a worker may get an event twice. RunID is that of the StartRequest: a later workflow of the same ID
// ignores the message.
type ProcessEvents struct {
	RunID  string         `json:"run_id,omitempty"`
	Events []ProcessEvent `json:"events"`
}

// DrainRequest waits until no call is in flight, for at most Timeout.
type DrainRequest struct {
	Process
	Timeout spec.Duration `json:"timeout"`
}

// DrainResult is the end of a drain; CallsCut counts the calls still in flight at the timeout.
type DrainResult struct {
	CallsCut int `json:"calls_cut,omitempty"`
}

// ResetRequest makes a worker clear what the holder of an expired lease left behind, within Timeout. Calls under that
// lease have ended.
type ResetRequest struct {
	Process
	LeaseID string        `json:"lease_id"`
	Timeout spec.Duration `json:"timeout"`
}

// ResetResult is the end of a reset; Problem is why it failed, "" if it did not.
type ResetResult struct {
	Problem string `json:"problem,omitempty"`
	// Usage counts the calls under the lease on its host.
	Usage Usage `json:"usage"`
}

// StopRequest ends a process: SIGTERM, then SIGKILL for the whole tree after Grace. A process that the host does not
// know counts as ended, since its agent was restarted and the reaper has killed its tree.
type StopRequest struct {
	Process
	Grace  spec.Duration `json:"grace"`
	Reason string        `json:"reason,omitempty"`
}

// StopResult is the exit of the process.
type StopResult struct {
	Exit   lifecycle.Exit `json:"exit"`
	Reason string         `json:"reason,omitempty"`
	// Usage counts all calls of the incarnation on its host; nil if the host does not know it.
	Usage *Usage `json:"usage,omitempty"`
}

// Sample is the resource usage of a process tree at one moment.
type Sample struct {
	At time.Time `json:"at"`
	// MemoryBytes is what the tree costs the host. MemorySource is pss, estimate (from an earlier PSS and the growth of
	// RSS), or rss where PSS cannot be read.
	MemoryBytes  int64  `json:"memory_bytes"`
	MemorySource string `json:"memory_source,omitempty"`
	RSSBytes     int64  `json:"rss_bytes"`
	PSSBytes     int64  `json:"pss_bytes,omitempty"` // 0 unless MemorySource is pss
	// CPUPercent covers the time since the previous measurement, or since the program began to run; 100 is one core. A
	// sample less than 200 ms after the previous measurement repeats its value (0 at first), since the clock ticks of the
	// process table are too coarse.
	CPUPercent float64 `json:"cpu_percent"`
	OpenFiles  int     `json:"open_files"`
	Threads    int     `json:"threads"`
	Children   int     `json:"children"` // processes besides the first
	// ReadBytes and WriteBytes went to and from storage since the start, as far as the system reports them.
	ReadBytes  int64 `json:"read_bytes"`
	WriteBytes int64 `json:"write_bytes"`
	// Network is nil unless the tree has a network namespace of its own, with an interface other than loopback.
	Network *NetworkBytes `json:"network,omitempty"`
}

// NetworkBytes are what the network interfaces of a process tree have received and sent since it started.
type NetworkBytes struct {
	ReceivedBytes int64 `json:"received_bytes"`
	SentBytes     int64 `json:"sent_bytes"`
}
