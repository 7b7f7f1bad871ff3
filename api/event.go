package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// Event is something that happened, as a CloudEvent 1.0 in structured JSON.
type Event struct {
	SpecVersion string `json:"specversion"` // 1.0
	// ID is unique among the events of all agents. It is the id of a place in an agent's stream, too.
	ID string `json:"id"`
	// Source is what it happened to: /pools/POOL/workers/N, /pools/POOL or /hosts/HOST.
	Source string `json:"source"`
	// Type is one of EventTypes.
	Type        string    `json:"type"`
	Time        time.Time `json:"time"`
	ContentType string    `json:"datacontenttype"` // application/json
	// Omitted counts the events of this type that the agent left out since the one before, because there were too many in a second.
	Omitted int32 `json:"omitted,omitempty"`
	// Data is an object; docs/events.md lists its fields by type.
	Data json.RawMessage `json:"data"`
}

// The types of events.
const (
	EventWorkerTransitioned = "worker.transitioned"
	EventProcessStarted     = "process.started"
	EventProcessStartFailed = "process.start_failed"
	EventProcessEnded       = "process.ended"
	EventLeaseGranted       = "lease.granted"
	EventLeaseRenewed       = "lease.renewed"
	EventLeaseReleased      = "lease.released"
	EventLeaseExpired       = "lease.expired"
	EventLeaseRefused       = "lease.refused"
	// EventMissed is about the stream itself: what its reader could not get.
	EventMissed = "events.missed"
)

// EventTypes lists the types of events.
func EventTypes() []string {
	return []string{
		EventWorkerTransitioned, EventProcessStarted, EventProcessStartFailed, EventProcessEnded,
		EventLeaseGranted, EventLeaseRenewed, EventLeaseReleased, EventLeaseExpired, EventLeaseRefused, EventMissed,
	}
}

// Emit takes what happened: the type of an event, its source, its time and its data, which must encode to a JSON object. It returns at
// once, and keeps no part of data.
type Emit func(eventType, source string, at time.Time, data any)

// WorkerSource is the source of the events of a worker, which is named POOL/N.
func WorkerSource(worker string) string {
	pool, slot, _ := strings.Cut(worker, "/")
	return PoolSource(pool) + "/workers/" + slot
}

// PoolSource is the source of the events of a pool.
func PoolSource(pool string) string { return "/pools/" + pool }

// HostSource is the source of the events of a host.
func HostSource(hostID string) string { return "/hosts/" + hostID }

// SourcePool is the pool that a source is in; "" if it is in none.
func SourcePool(source string) string {
	rest, inPool := strings.CutPrefix(source, "/pools/")
	if !inPool {
		return ""
	}
	pool, _, _ := strings.Cut(rest, "/")
	return pool
}

// TransitionEvent is the data of EventWorkerTransitioned.
type TransitionEvent struct {
	lifecycle.Transition
	// Host and PID are those of the process, if there is one.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// ProcessEventData is the data of EventProcessStarted, EventProcessStartFailed and EventProcessEnded. Fields that do not concern the type are left out.
type ProcessEventData struct {
	Host        string          `json:"host"`
	Incarnation int64           `json:"incarnation"`
	PID         int             `json:"pid,omitempty"`
	TookMS      int64           `json:"took_ms,omitempty"` // from the spawn until it was ready
	Outcome     lifecycle.State `json:"outcome,omitempty"`
	Code        *int            `json:"code,omitempty"` // of its exit
	Signal      string          `json:"signal,omitempty"`
	Reason      string          `json:"reason,omitempty"`
}

// LeaseEvent is the data of the events of leases. Fields that do not concern the type are left out.
type LeaseEvent struct {
	LeaseID     string     `json:"lease_id,omitempty"`
	Holder      string     `json:"holder,omitempty"`
	Session     string     `json:"session,omitempty"`
	Incarnation int64      `json:"incarnation,omitempty"`
	Host        string     `json:"host,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	// Outcome is ok, error or close as its holder said, or ended if it did not release the lease.
	Outcome string `json:"outcome,omitempty"`
	Usage   *Usage `json:"usage,omitempty"` // as its holder reported it
	// Request and Code say what was refused: checkout, renew or checkin.
	Request string `json:"request,omitempty"`
	Code    Code   `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// MissedEvent is the data of EventMissed.
type MissedEvent struct {
	Count  uint64 `json:"count,omitempty"` // events of any type and pool; 0 if nobody knows
	Reason string `json:"reason"`
}
