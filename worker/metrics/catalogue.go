// Package metrics is what an agent tells Prometheus: what its gateway counts, what it knows of its processes, what their workflows told
// it, and how its pools stand. Nothing here is on the path of a call: everything is read when somebody scrapes, and only then.
//
// Labels are bounded: pools, workers of this host, words from fixed lists, and the names of at most 64 counters that a program keeps. A session, a lease, a method or a holder is never one.
// What belongs to a worker or a pool that is no more goes away.
package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is what can be done with a metric's values.
type Kind string

// The kinds.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Metric describes one metric of Tempool's own.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string

	desc *prometheus.Desc
}

// catalogue has every metric in the order of its definition.
var catalogue []*Metric

func define(kind Kind, name, help string, labels ...string) *Metric {
	m := &Metric{Name: name, Kind: kind, Labels: labels, Help: help, desc: prometheus.NewDesc(name, help, labels, nil)}
	catalogue = append(catalogue, m)
	return m
}

// Catalogue lists the metrics of Tempool's own, in the order in which they are documented.
func Catalogue() []Metric {
	list := make([]Metric, len(catalogue))
	for i, m := range catalogue {
		list[i] = *m
		list[i].Labels = slices.Clone(m.Labels)
	}
	return list
}

// The agent.
var (
	buildInfo          = define(Gauge, "tempool_build_info", "1; its labels say what is running.", "version", "revision", "go_version")
	agentInfo          = define(Gauge, "tempool_agent_info", "1; its label is the agent's host id.", "host")
	capacity           = define(Gauge, "tempool_agent_capacity", "Processes the agent may run.")
	processes          = define(Gauge, "tempool_agent_processes", "Processes of workers that live here, starting ones included.")
	controlPlane       = define(Gauge, "tempool_control_plane_up", "1 if Temporal answered when the agent last looked, else 0.")
	controlPlaneOutage = define(Gauge, "tempool_control_plane_silence_seconds", "For how long Temporal has not answered; 0 while it does.")
	fenced             = define(Gauge, "tempool_gateway_fenced", "1 while the gateway does not serve calls of pools because Temporal has been lost for too long.")
	connections        = define(Gauge, "tempool_gateway_connections", "Connections of clients that are open.", "listener")
	sdkDropped         = define(Counter, "tempool_sdk_series_dropped_total", "Measurements of the Temporal SDK that were dropped because there were too many series of them.")
)

// Pools, as this agent's gateway and its activities count them.
var (
	callSeconds   = define(Histogram, "tempool_pool_call_duration_seconds", "Times of calls that a worker of this host has seen, from the worker's pick to the end of the answer.", "pool")
	queueLength   = define(Gauge, "tempool_pool_queue_length", "Calls that wait in this gateway for a worker.", "pool")
	queueSeconds  = define(Histogram, "tempool_pool_queue_wait_seconds", "Times that calls waited in this gateway, however the wait ended. Calls that found a worker at once are not among them.", "pool")
	callsRefused  = define(Counter, "tempool_pool_calls_refused_total", "Calls of the pool that this gateway refused before a worker had seen them.", "pool", "code")
	startSeconds  = define(Histogram, "tempool_pool_start_duration_seconds", "Times from the spawn of a process on this host until it was ready.", "pool")
	startFailures = define(Counter, "tempool_pool_start_failures_total", "Starts on this host that did not become ready.", "pool")
	decisions     = define(Counter, "tempool_pool_decisions_total", "What this host decided by itself about workers of the pool.", "pool", "decision")
	probeFailures = define(Counter, "tempool_pool_probe_failures_total", "Health checks on this host that failed.", "pool")
)

// Sessions of pools, on this host.
var (
	affinityLookups  = define(Counter, "tempool_session_affinity_lookups_total", "Calls with a session that looked for the worker that served it last: result hit if one was remembered, else miss.", "pool", "result")
	affinityBindings = define(Gauge, "tempool_session_affinity_bindings", "Sessions of which it is remembered which worker served them last.", "pool")
)

// Pools, as their workflows know them. Every agent that has or had a worker of the pool tells the same.
var (
	poolSize          = define(Gauge, "tempool_pool_size", "Workers the pool is to have, on all hosts.", "pool")
	poolReady         = define(Gauge, "tempool_pool_ready", "Workers of the pool that are ready or busy, on all hosts.", "pool")
	poolWorkers       = define(Gauge, "tempool_pool_workers", "Workers of the pool by the state they last reported, on all hosts. A busy worker counts as ready.", "pool", "state")
	poolResting       = define(Gauge, "tempool_pool_resting", "Workers of the pool that stay down until an operator restarts them: they gave up, or were told to rest.", "pool")
	poolOutOfService  = define(Gauge, "tempool_pool_out_of_service", "Workers of the pool that are out of service, by why, on all hosts.", "pool", "reason")
	poolStartsHeld    = define(Gauge, "tempool_pool_starts_held", "1 while the pool's breaker is open: too many starts have failed, and one at a time tries whether they work again.", "pool")
	poolRolloutHalted = define(Gauge, "tempool_pool_rollout_halted", "1 while a rolling restart has halted because a worker did not come back, else 0.", "pool")
)

// Workers of this host.
var (
	workerState       = define(Gauge, "tempool_worker_state", "1 for the state the worker is in on this host, 0 for the others.", "pool", "worker", "state")
	workerHealthy     = define(Gauge, "tempool_worker_healthy", "1 if the worker's last health check passed, or none was due yet; else 0.", "pool", "worker")
	workerScore       = define(Gauge, "tempool_worker_score", "How fit the worker is, from 0 to 100.", "pool", "worker")
	workerIncarnation = define(Gauge, "tempool_worker_incarnation", "The number of the worker's process; the first is 1.", "pool", "worker")
	workerStart       = define(Gauge, "tempool_worker_start_time_seconds", "When the worker's process was spawned, in Unix time.", "pool", "worker")
	workerRequests    = define(Counter, "tempool_worker_requests_total", "Calls the worker has seen, failed ones included.", "pool", "worker")
	workerFailed      = define(Counter, "tempool_worker_requests_failed_total", "Calls the worker has seen that failed.", "pool", "worker")
	workerCallSeconds = define(Counter, "tempool_worker_call_seconds_total", "Time the worker has spent on calls.", "pool", "worker")
	workerInFlight    = define(Gauge, "tempool_worker_requests_in_flight", "Calls the worker is busy with.", "pool", "worker")
	workerMemory      = define(Gauge, "tempool_worker_memory_bytes", "Resident memory of the worker's whole process tree.", "pool", "worker")
	workerCPU         = define(Gauge, "tempool_worker_cpu_cores", "Processor the process tree used in the time between its last two samples; 1 is one core.", "pool", "worker")
	workerFiles       = define(Gauge, "tempool_worker_open_files", "Files the process tree has open.", "pool", "worker")
	workerThreads     = define(Gauge, "tempool_worker_threads", "Threads of the process tree.", "pool", "worker")
	workerCounted     = define(Counter, "tempool_worker_counted_total", "What the program counts through its SDK, by the name it gives.", "pool", "worker", "counter")
	workerGranted     = define(Counter, "tempool_worker_leases_granted_total", "Leases on the worker that this gateway got or learned of.", "pool", "worker")
	workerRefused     = define(Counter, "tempool_worker_leases_refused_total", "Checkouts through this gateway that the worker refused.", "pool", "worker")
	workerRestarts    = define(Counter, "tempool_worker_restarts_total", "Processes of the worker that ended otherwise than by a rotation, in all its life on all hosts, by what ended them.", "pool", "worker", "reason")
	workerRotations   = define(Counter, "tempool_worker_rotations_total", "Processes of the worker that were replaced in good order, in all its life on all hosts, by what they were replaced for.", "pool", "worker", "reason")
)
