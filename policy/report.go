package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// PoolFacts is the input of a report: the state of a pool and its workers.
type PoolFacts struct {
	Pool        string
	Size        int // wanted number of workers
	SpecVersion int64
	Stopping    bool
	// FollowsDemand says that the size follows the demand, and AboveMax why it is at its maximum although more is wanted; else it is empty.
	FollowsDemand bool
	AboveMax      string
	// Rollout is the progress of a rolling restart, Halted why it halted; empty if there is none.
	Rollout, Halted string
	// StartsPaused is why the pool's starts are held; empty if they are not.
	StartsPaused string
	// MaxMemoryBytes is the memory at which a worker is rotated; 0 is never. AutoMaxMemory derives it from each program's baseline.
	MaxMemoryBytes int64
	AutoMaxMemory  bool
	Workers        []WorkerFacts
	At             time.Time
}

// WorkerFacts is the state of one worker. Measured says that the fields after it are known: a pool knows only the states of its workers.
type WorkerFacts struct {
	Worker      string
	State       lifecycle.State
	Health      lifecycle.Health
	Since       time.Time // when it came into that state
	Reason      string
	Host        string
	Resting     bool   // it stays down until an operator restarts it
	Unreachable string // why the worker could not be queried; empty if it could

	Measured            bool
	Grade               Grade
	Score               *float64
	Warnings            []string
	Watch               string        // why it should be watched closely
	FailsIn             time.Duration // to its limit, as prediction sees it; 0 means no failure in sight
	Holder              string        // of a lease on it
	Requests, Failed    int64
	CallTime            time.Duration // of all requests
	MemoryBytes         int64         // of its whole process tree
	PeakMemoryBytes     int64
	MaxMemoryBytes      int64 // at which it is rotated; 0 is none, or not known
	CPUPercent          float64
	OpenFiles, Threads  int
	Network             *NetworkUsage // nil unless its process tree has a network namespace of its own
	Uptime              time.Duration
	Restarts            map[string]int64          // unplanned, by cause, since the worker was created
	Rotations           map[string]int64          // planned, by cause
	Ended               map[lifecycle.State]int64 // processes that have ended, by outcome
	ConsecutiveFailures int
	// Observed is why it would be replaced if policy.mode were not "observe", Replacing why it is being replaced, ReplacementFailed why the
	// last replacement failed, and Rotated why the last one was wanted.
	Observed, Replacing, ReplacementFailed, Rotated string
}

// Report is the health of a pool, its problems and their fixes. Its text is for people, its fields for programs.
type Report struct {
	Pool     string         `json:"pool"`
	At       time.Time      `json:"at"`
	Overview Overview       `json:"overview"`
	Health   []WorkerHealth `json:"health"`
	// Resources and Performance are null if no worker's figures are known.
	Resources       *Resources   `json:"resources"`
	Performance     *Performance `json:"performance"`
	Alerts          []Alert      `json:"alerts"`
	Recommendations []string     `json:"recommendations"`
}

// Status is the state of a pool in one word.
type Status string

// Values of Status.
const (
	StatusHealthy  Status = "healthy"  // all workers are in service
	StatusShort    Status = "short"    // some are not
	StatusDown     Status = "down"     // none is
	StatusStopping Status = "stopping" // it is being stopped
)

// Overview summarizes a pool.
type Overview struct {
	Status      Status         `json:"status"`
	Summary     string         `json:"summary"`
	Size        int            `json:"size"`
	Ready       int            `json:"ready"` // ready or busy
	Leased      int            `json:"leased"`
	SpecVersion int64          `json:"spec_version"`
	States      map[string]int `json:"states"`
	Hosts       map[string]int `json:"hosts"`
}

// WorkerHealth is the state of one worker, and the reason.
type WorkerHealth struct {
	Worker string           `json:"worker"`
	State  lifecycle.State  `json:"state"`
	Health lifecycle.Health `json:"health"`
	Grade  Grade            `json:"grade"`
	Score  *float64         `json:"score"`
	ForS   float64          `json:"for_s"` // seconds in this state
	// MemoryBytes, CPUPercent and UptimeS are null if the worker's figures are not known.
	MemoryBytes *int64   `json:"memory_bytes"`
	CPUPercent  *float64 `json:"cpu_percent"` // 100 is one core
	UptimeS     *float64 `json:"uptime_s"`
	// Network is nil unless the worker's process tree has a network namespace of its own.
	Network *NetworkUsage `json:"network,omitempty"`
	// FailsInS is how long the worker takes to its limit at the present trend; 0 means no failure in sight.
	FailsInS float64 `json:"fails_in_s,omitempty"`
	Reason   string  `json:"reason,omitempty"`
}

// Resources is the total usage of the workers.
type Resources struct {
	Measured        int     `json:"measured"` // number of workers
	MemoryBytes     int64   `json:"memory_bytes"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"` // the sum of each worker's peak
	CPUPercent      float64 `json:"cpu_percent"`       // 100 is one core
	OpenFiles       int     `json:"open_files"`
	Threads         int     `json:"threads"`
	// Network is nil if that of no worker is known.
	Network      *NetworkResources `json:"network,omitempty"`
	Largest      string            `json:"largest,omitempty"` // the worker with the most memory
	LargestBytes int64             `json:"largest_bytes,omitempty"`
}

// NetworkUsage is what a process tree has received and sent.
type NetworkUsage struct {
	ReceivedBytes int64 `json:"received_bytes"`
	SentBytes     int64 `json:"sent_bytes"`
}

// NetworkResources is the sum of those workers whose network is known.
type NetworkResources struct {
	Measured int `json:"measured"` // number of workers
	NetworkUsage
}

// Performance is what the workers have served since they were created.
type Performance struct {
	Requests    int64            `json:"requests"`
	Failed      int64            `json:"failed"`
	FailedShare float64          `json:"failed_share"` // 0 to 1
	AvgCallMS   float64          `json:"avg_call_ms"`
	Slowest     string           `json:"slowest,omitempty"` // the worker with the longest mean call
	SlowestMS   float64          `json:"slowest_ms,omitempty"`
	Restarts    map[string]int64 `json:"restarts"`
	Rotations   map[string]int64 `json:"rotations"`
	// Ended counts the processes that have ended, by outcome.
	Ended map[lifecycle.State]int64 `json:"ended"`
}

// Severity is how much an alert matters.
type Severity string

// The severities.
const (
	SeverityCritical Severity = "critical" // calls fail, or will soon
	SeverityWarning  Severity = "warning"  // something is broken; the pool works around it
)

// Alert is one problem.
type Alert struct {
	Severity Severity `json:"severity"`
	Worker   string   `json:"worker,omitempty"` // empty: the pool
	Text     string   `json:"text"`
}

// NewReport makes the report of a pool.
func NewReport(p PoolFacts) Report {
	r := Report{Pool: p.Pool, At: p.At, Overview: overview(p), Health: []WorkerHealth{}, Alerts: alerts(p)}
	measured := slices.DeleteFunc(slices.Clone(p.Workers), func(w WorkerFacts) bool { return !w.Measured })
	if len(measured) > 0 {
		r.Resources, r.Performance = resources(measured), performance(measured)
	}
	for _, w := range p.Workers {
		health := WorkerHealth{
			Worker: w.Worker, State: w.State, Health: w.Health, Grade: w.Grade, Score: w.Score, ForS: max(0, p.At.Sub(w.Since).Seconds()), Reason: watchReason(w), FailsInS: w.FailsIn.Seconds(),
		}
		if w.Since.IsZero() {
			health.ForS = 0
		}
		if w.Measured {
			uptime := w.Uptime.Seconds()
			health.MemoryBytes, health.CPUPercent, health.UptimeS = &w.MemoryBytes, &w.CPUPercent, &uptime
			health.Network = w.Network
		}
		if health.Reason == "" && w.Replacing != "" {
			health.Reason = "being replaced: " + w.Replacing
		}
		if !w.serving() {
			health.Reason = w.Reason
		}
		if w.Unreachable != "" {
			health.Reason = "not reachable; last report to the pool: " + w.Unreachable
		}
		r.Health = append(r.Health, health)
	}
	r.Recommendations = recommendations(p, measured)
	return r
}

func (w WorkerFacts) serving() bool { return w.State.InService() }

func overview(p PoolFacts) Overview {
	o := Overview{Status: StatusHealthy, Size: p.Size, SpecVersion: p.SpecVersion, States: map[string]int{}, Hosts: map[string]int{}}
	for _, w := range p.Workers {
		o.States[string(w.State)]++
		if w.Host != "" {
			o.Hosts[w.Host]++
		}
		if w.serving() {
			o.Ready++
		}
		if w.State == lifecycle.Busy || w.Holder != "" {
			o.Leased++
		}
	}
	switch {
	case p.Stopping:
		o.Status, o.Summary = StatusStopping, fmt.Sprintf("Pool %s is stopping; %s left.", p.Pool, counted(len(p.Workers), "worker"))
	case o.Ready == 0 && p.Size > 0:
		o.Status, o.Summary = StatusDown, fmt.Sprintf("Pool %s is down: none of its %s is in service.", p.Pool, counted(p.Size, "worker"))
	case o.Ready < p.Size:
		o.Status, o.Summary = StatusShort, fmt.Sprintf("Pool %s is short of workers: %d of %d are in service.", p.Pool, o.Ready, p.Size)
	default:
		o.Summary = fmt.Sprintf("Pool %s is healthy: %d of %d workers are in service.", p.Pool, o.Ready, p.Size)
	}
	if p.Rollout != "" {
		o.Summary += " A rolling restart is under way: " + p.Rollout + "."
	}
	return o
}

func resources(measured []WorkerFacts) *Resources {
	r := &Resources{Measured: len(measured)}
	for _, w := range measured {
		r.MemoryBytes += w.MemoryBytes
		r.PeakMemoryBytes += w.PeakMemoryBytes
		r.CPUPercent += w.CPUPercent
		r.OpenFiles += w.OpenFiles
		r.Threads += w.Threads
		r.addNetwork(w.Network)
		if w.MemoryBytes > r.LargestBytes {
			r.Largest, r.LargestBytes = w.Worker, w.MemoryBytes
		}
	}
	return r
}

func (r *Resources) addNetwork(n *NetworkUsage) {
	if n == nil {
		return
	}
	if r.Network == nil {
		r.Network = &NetworkResources{}
	}
	r.Network.Measured++
	r.Network.ReceivedBytes += n.ReceivedBytes
	r.Network.SentBytes += n.SentBytes
}

func performance(measured []WorkerFacts) *Performance {
	p := &Performance{Restarts: map[string]int64{}, Rotations: map[string]int64{}, Ended: map[lifecycle.State]int64{}}
	var took time.Duration
	for _, w := range measured {
		p.Requests += w.Requests
		p.Failed += w.Failed
		took += w.CallTime
		if mean := w.meanCallMS(); mean > p.SlowestMS {
			p.Slowest, p.SlowestMS = w.Worker, mean
		}
		for cause, n := range w.Restarts {
			p.Restarts[cause] += n
		}
		for cause, n := range w.Rotations {
			p.Rotations[cause] += n
		}
		for outcome, n := range w.Ended {
			p.Ended[outcome] += n
		}
	}
	if p.Requests > 0 {
		p.FailedShare = float64(p.Failed) / float64(p.Requests)
		p.AvgCallMS = float64(took.Microseconds()) / 1000 / float64(p.Requests)
	}
	return p
}

func (w WorkerFacts) meanCallMS() float64 {
	if w.Requests == 0 {
		return 0
	}
	return float64(w.CallTime.Microseconds()) / 1000 / float64(w.Requests)
}

// watchReason is what is wrong with a worker that serves, or will be: a failure in sight comes first.
func watchReason(w WorkerFacts) string {
	reasons := slices.Clone(w.Warnings)
	if w.Watch != "" && (w.FailsIn > 0 || len(reasons) == 0) {
		reasons = slices.Insert(reasons, 0, w.Watch)
	}
	return strings.Join(reasons, " ")
}
