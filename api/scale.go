package api

import "time"

// The workflow Scale sends a pool the update scale, for a Schedule of Temporal, which can only start workflows. It and
// its local activity of the same name take a ScheduledScale.
const (
	WorkflowScale = "Scale"
	ActivityScale = "Scale"
)

// ScaleRequest sets the number of workers, or the bounds of a number that follows the demand.
type ScaleRequest struct {
	// Size is the number of workers. Where it follows demand, it continues from there.
	Size int `json:"size,omitempty"`
	// Bounds replace scale.min and scale.max of the spec; Size must then be 0.
	Bounds *ScaleBounds `json:"bounds,omitempty"`
	// Reason and By appear in the event of the change of size.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// ScaleBounds bound the number of workers. Max 0 stops it from following the demand.
type ScaleBounds struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// ScaleResult is the change of size; the workers follow in the background. Bounds are those in effect, nil for a pool
// that does not follow the demand.
type ScaleResult struct {
	From   int          `json:"from"`
	To     int          `json:"to"`
	Bounds *ScaleBounds `json:"bounds,omitempty"`
}

// ScheduledScale is the input of the workflow Scale.
type ScheduledScale struct {
	Pool string `json:"pool"`
	ScaleRequest
}

// Demand is what one gateway, or a client that found no worker, reports of the demand for a pool. It replaces the last
// report of the same Host. A report without load, or none for Expiry, ends it.
type Demand struct {
	Host  string `json:"host"`            // or DemandOfWorkflows, DemandOfClients
	Epoch int64  `json:"epoch,omitempty"` // of the agent; the report of an older one is ignored
	// Load is the smoothed demand, in calls. The counts are those of the moment.
	Load    float64 `json:"load"`
	Calls   int     `json:"calls,omitempty"`
	Waiting int     `json:"waiting,omitempty"`
	Leases  int     `json:"leases,omitempty"`
	// ExpiryMS is how long the report counts, at most a day.
	ExpiryMS int64 `json:"expiry_ms"`
}

// Values of Demand.Host for reporters that are not hosts. No host id has such a form.
const (
	DemandOfWorkflows = "(workflows)" // all calls of Execute that wait in Temporal
	DemandOfClients   = "(clients)"   // all clients that found no worker
)

// ScaleStatus is the demand for a pool and what follows from it.
type ScaleStatus struct {
	Min int `json:"min"`
	Max int `json:"max"`
	// Wanted is the number of workers for the present demand, and Reason why the pool has its size.
	Wanted int     `json:"wanted"`
	Load   float64 `json:"load"` // in calls
	Reason string  `json:"reason"`
	// Cause is the reason as one word: demand, min, max, down_after, idle_to_zero, leased or sessions.
	Cause string `json:"cause"`
	// Demand are the reports that count, by host.
	Demand []HostDemand `json:"demand,omitempty"`
	// Decisions are the newest changes of size by demand, oldest first.
	Decisions []ScaleDecision `json:"decisions,omitempty"`
}

// Causes of a pool's size beside those of the policy.
const (
	ScaleCauseLeased   = "leased"   // no worker can be removed: all are in use
	ScaleCauseSessions = "sessions" // the last worker stays, since no other host has the pool's sessions
)

// MaxDemands is of how many hosts a pool keeps the demand.
const MaxDemands = 200

// HostDemand is the demand that one host has reported.
type HostDemand struct {
	Host    string    `json:"host"`
	Epoch   int64     `json:"epoch,omitempty"`
	Load    float64   `json:"load"`
	Calls   int       `json:"calls,omitempty"`
	Waiting int       `json:"waiting,omitempty"`
	Leases  int       `json:"leases,omitempty"`
	At      time.Time `json:"at"`
	Expires time.Time `json:"expires"`
}

// ScaleDecision is one change of a pool's size by demand. Observed ones were not carried out (policy.mode = "observe").
type ScaleDecision struct {
	At       time.Time `json:"at"`
	From     int       `json:"from"`
	To       int       `json:"to"`
	Wanted   int       `json:"wanted"`
	Load     float64   `json:"load"`
	Reason   string    `json:"reason"`
	Worker   string    `json:"worker,omitempty"` // that goes
	Observed bool      `json:"observed,omitempty"`
}

// PoolHolder is the holder of the lease under which a pool stops a worker that is not wanted.
func PoolHolder(pool string) string { return "pool/" + pool }

// ReserveWorkerRequest asks which of some workers of a pool are missed least. With a RequestID it asks for a lease on
// one instead, so that it can be stopped and no call or lease is cut.
type ReserveWorkerRequest struct {
	Pool      string `json:"pool"`
	Slots     []int  `json:"slots"`
	RequestID string `json:"request_id,omitempty"`
}

// ReserveWorkerResult is the order in which the workers can go, or the lease. Without one, Problem is why.
type ReserveWorkerResult struct {
	Order   []int  `json:"order,omitempty"`
	Slot    int    `json:"slot"`
	LeaseID string `json:"lease_id,omitempty"`
	Problem string `json:"problem,omitempty"`
}
