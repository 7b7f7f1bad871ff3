package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
)

// pool is what a report is about.
type pool struct {
	api.PoolWorkers
	at      time.Time
	figures bool // those of the workers that answer are known: a pool knows only the states of its workers
}

func (p pool) measured(w api.Worker) bool { return p.figures && w.Error == "" }

func isLeased(w api.Worker) bool {
	return w.State == lifecycle.Busy || w.Lease != nil && w.Lease.Holder != ""
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
	Network *api.NetworkBytes `json:"network,omitempty"`
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
	// Network is nil if that of no worker is known.
	Network *NetworkResources `json:"network,omitempty"`
}

// NetworkResources is the sum of those workers whose network is known.
type NetworkResources struct {
	Measured int `json:"measured"` // number of workers
	api.NetworkBytes
}

// Performance is what the workers have served since they were created.
type Performance struct {
	Requests    int64            `json:"requests"`
	Failed      int64            `json:"failed"`
	FailedShare float64          `json:"failed_share"` // 0 to 1
	AvgCallMS   float64          `json:"avg_call_ms"`
	Restarts    map[string]int64 `json:"restarts"`
	Rotations   map[string]int64 `json:"rotations"`
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
	Runbook  string   `json:"runbook"` // what to do, see Runbook
}

// Runbooks are the pages about the alerts, without repetition.
func (r Report) Runbooks() (links []string) {
	for _, alert := range r.Alerts {
		if !slices.Contains(links, alert.Runbook) {
			links = append(links, alert.Runbook)
		}
	}
	return links
}

// NewReport reports on a pool whose workers were queried, as they were at now.
func NewReport(view api.PoolWorkers, now time.Time) Report {
	view.Workers = slices.Clone(view.Workers)
	for i, w := range view.Workers {
		if w.Error != "" { // what else is known may be of two moments
			view.Workers[i] = api.Worker{Error: w.Error, Entry: w.Entry, WorkerState: api.WorkerState{Worker: w.Worker,
				State: w.State, Health: w.Health, Since: w.Since, Reason: w.Reason, Host: w.Host}}
		}
	}
	return pool{view, now.UTC(), true}.report()
}

// NewRosterReport reports on what a pool itself knows: the states of its workers at now, and none of their figures.
func NewRosterReport(status api.PoolStatus, now time.Time) Report {
	view := status.View()
	view.Workers = slices.DeleteFunc(view.Workers, func(w api.Worker) bool { return w.Entry.Gone })
	for i := range view.Workers {
		w := &view.Workers[i]
		w.Metrics, w.Health = api.Metrics{}, lifecycle.Unknown // a report of the roster has neither
		if w.State == lifecycle.Degraded {
			w.Health = lifecycle.Unhealthy
		}
	}
	return pool{view, now.UTC(), false}.report()
}

func (p pool) report() Report {
	r := Report{Pool: p.Pool, At: p.at, Overview: overview(p), Health: make([]WorkerHealth, 0, len(p.Workers)),
		Alerts: alerts(p)}
	measured := slices.DeleteFunc(slices.Clone(p.Workers), func(w api.Worker) bool { return !p.measured(w) })
	if len(measured) > 0 {
		r.Resources, r.Performance = resources(measured), performance(measured)
	}
	for i := range p.Workers {
		w := &p.Workers[i]
		health := WorkerHealth{
			Worker: w.Worker, State: w.State, Health: w.Health, Grade: Grade(w.Grade), Score: w.Score, Reason: watchReason(*w),
			FailsInS: w.FailsInS,
		}
		if !w.Since.IsZero() {
			health.ForS = max(0, p.at.Sub(w.Since).Seconds())
		}
		if p.measured(*w) {
			health.MemoryBytes, health.CPUPercent, health.UptimeS, health.Network =
				&w.CurrentMemoryBytes, &w.CPUPercent, &w.UptimeS, w.Network
		}
		if health.Reason == "" && w.Rotation != nil && w.Rotation.Reason != "" {
			health.Reason = "being replaced: " + w.Rotation.Reason
		}
		if !w.State.InService() {
			health.Reason = w.Reason
		}
		if w.Error != "" {
			health.Reason = "not reachable; last report to the pool: " + w.Error
		}
		r.Health = append(r.Health, health)
	}
	r.Recommendations = recommendations(p, measured)
	return r
}

func overview(p pool) Overview {
	o := Overview{Status: StatusHealthy, Size: p.Size, SpecVersion: p.SpecVersion, States: map[string]int{},
		Hosts: map[string]int{}}
	for _, w := range p.Workers {
		o.States[string(w.State)]++
		if w.Host != "" {
			o.Hosts[w.Host]++
		}
		if w.State.InService() {
			o.Ready++
		}
		if isLeased(w) {
			o.Leased++
		}
	}
	switch {
	case p.Status.Stopping:
		o.Status, o.Summary = StatusStopping, fmt.Sprintf("Pool %s is stopping; %s left.", p.Pool,
			format.Plural(len(p.Workers), "worker"))
	case o.Ready == 0 && p.Size > 0:
		o.Status, o.Summary = StatusDown, fmt.Sprintf("Pool %s is down: none of its %s is in service.", p.Pool,
			format.Plural(p.Size, "worker"))
	case o.Ready < p.Size:
		o.Status, o.Summary = StatusShort, fmt.Sprintf("Pool %s is short of workers: %d of %d are in service.", p.Pool,
			o.Ready, p.Size)
	default:
		o.Summary = fmt.Sprintf("Pool %s is healthy: %d of %d workers are in service.", p.Pool, o.Ready, p.Size)
	}
	switch r := p.Rollout; {
	case r == nil || r.Failed():
	case r.ByOperator:
		o.Summary += " The rolling restart has " + sentence(r.Halted)
	default:
		o.Summary += fmt.Sprintf(" A rolling restart is under way: %s, %d done and %d to go.", r.Reason, r.Done,
			len(r.Waiting)+len(r.Current))
	}
	return o
}

func resources(measured []api.Worker) *Resources {
	r := &Resources{Measured: len(measured)}
	for _, w := range measured {
		r.MemoryBytes += w.CurrentMemoryBytes
		r.PeakMemoryBytes += w.PeakMemoryBytes
		r.CPUPercent += w.CPUPercent
		r.addNetwork(w.Network)
	}
	return r
}

func (r *Resources) addNetwork(n *api.NetworkBytes) {
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

func performance(measured []api.Worker) *Performance {
	p := &Performance{Restarts: map[string]int64{}, Rotations: map[string]int64{}}
	var took int64 // ms
	for _, w := range measured {
		p.Requests += w.RequestsServed
		p.Failed += w.RequestsFailed
		took += w.TotalCallTimeMS
		addTo(p.Restarts, w.RestartsByReason)
		addTo(p.Rotations, w.RotationsByReason)
	}
	if p.Requests > 0 {
		p.FailedShare = float64(p.Failed) / float64(p.Requests)
		p.AvgCallMS = float64(took) / float64(p.Requests)
	}
	return p
}

func addTo(sums, counts map[string]int64) {
	for name, n := range counts {
		sums[name] += n
	}
}

// watchReason is what is wrong with a worker that serves, or will be: a failure in sight comes first.
func watchReason(w api.Worker) string {
	why := slices.Clone(w.Warnings)
	if w.Watch != "" && (w.FailsInS > 0 || len(why) == 0) {
		why = slices.Insert(why, 0, w.Watch)
	}
	return strings.Join(why, " ")
}
