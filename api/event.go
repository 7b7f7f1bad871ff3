package api

import (
	"encoding/json"
	"strings"
	"time"
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
	// Omitted counts the events of this type that the agent left out since the one before, because there were too many in
	// a second.
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
	EventRotationRequested  = "rotation.requested"
	EventRotationStarted    = "rotation.started"
	EventRotationFinished   = "rotation.finished"
	EventWorkerProbed       = "worker.probed"
	// EventWorkerSampled is emitted only while a reader selects it by this name.
	EventWorkerSampled       = "worker.sampled"
	EventLimitExceeded       = "limit.exceeded"
	EventResourcesRebalanced = "resources.rebalanced"
	EventCallFailed          = "call.failed"
	EventPoolScaled          = "pool.scaled"
	EventPoolApplied         = "pool.applied"
	EventPoolHeld            = "pool.held"
	EventPoolReleased        = "pool.released"
	EventHostJoined          = "host.joined"
	EventHostLeft            = "host.left"
	EventHostLost            = "host.lost"
	EventSessionCreated      = "session.created"
	EventSessionEvicted      = "session.evicted"
	EventSessionExpired      = "session.expired"
	EventSessionBound        = "session.bound"
	EventSessionMigrated     = "session.migrated"
	EventSessionNotReleased  = "session.not_released"
	EventAlertRaised         = "alert.raised"
	EventAlertCleared        = "alert.cleared"
	// EventMissed is about the stream itself: what its reader could not get.
	EventMissed = "events.missed"
)

// EventTypes lists the types of events.
func EventTypes() []string {
	return []string{
		EventWorkerTransitioned, EventProcessStarted, EventProcessStartFailed, EventProcessEnded,
		EventLeaseGranted, EventLeaseRenewed, EventLeaseReleased, EventLeaseExpired, EventLeaseRefused,
		EventRotationRequested, EventRotationStarted, EventRotationFinished, EventWorkerProbed, EventWorkerSampled,
		EventLimitExceeded, EventResourcesRebalanced,
		EventCallFailed, EventPoolScaled, EventPoolApplied, EventPoolHeld, EventPoolReleased, EventHostJoined, EventHostLeft,
		EventHostLost,
		EventSessionCreated, EventSessionEvicted, EventSessionExpired, EventSessionBound, EventSessionMigrated,
		EventSessionNotReleased,
		EventAlertRaised, EventAlertCleared, EventMissed,
	}
}

// Emit takes what happened: the type of an event, its source, its time and its data, which must encode to a JSON
// object. It returns at once, and keeps no part of data.
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
