// Package metrics serves the Prometheus metrics of an agent: what its gateway and its activities count, its processes,
// and the status of its pools. Nothing here is on the path of a call: the values are read at a scrape. What activities
// see of workers is also emitted here, so that counts and events are of the same things.
//
// Labels are bounded: pools, workers of this host, words of fixed lists, and the names of at most 64 counters of a
// program. Sessions, leases, methods and holders are never labels. The series of a worker or pool that has ended
// disappear.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tempool/tempool/gateway/pool"
)

// Kind is the type of a metric.
type Kind string

// The kinds.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Metric describes one metric of Tempool.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string

	desc *prometheus.Desc
}

// catalogue holds every metric in the order of definition.
var catalogue []*Metric

func define(kind Kind, name, help string, labels ...string) *Metric {
	m := &Metric{Name: name, Kind: kind, Labels: labels, Help: help, desc: prometheus.NewDesc(name, help, labels, nil)}
	catalogue = append(catalogue, m)
	return m
}

// counterVec counts the metric where it happens, not at a scrape.
func (m *Metric) counterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// histogramVec is counterVec for durations; buckets are in seconds.
func (m *Metric) histogramVec(buckets ...float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: buckets}, m.Labels)
}

// The agent.
var (
	buildInfo = define(Gauge, "tempool_build_info", "1; the labels describe the running program.", "version",
		"revision", "go_version")
	agentInfo = define(Gauge, "tempool_agent_info", "1; the label is the agent's host id.", "host")
	capacity  = define(Gauge, "tempool_agent_capacity",
		"Maximum number of processes that the agent runs (--capacity).")
	processes = define(Gauge, "tempool_agent_processes",
		"Processes of workers on this host, including those that are starting.")
	abandoned = define(Gauge, "tempool_agent_abandoned_functions",
		"Workers of kind function that have ended while one of their calls still runs in the agent.")
	controlPlane       = define(Gauge, "tempool_control_plane_up", "1 if Temporal answered the last check, else 0.")
	controlPlaneOutage = define(Gauge, "tempool_control_plane_outage_seconds",
		"Time since Temporal last answered; 0 while it answers.")
	fenced = define(Gauge, "tempool_gateway_fenced",
		"1 while the gateway rejects calls because Temporal has been unreachable for too long.")
	connections   = define(Gauge, "tempool_gateway_connections", "Open client connections.", "listener")
	eventsOmitted = define(Counter, "tempool_events_omitted_total",
		"Events that this agent left out because there were too many of their type in a second.", "type")
	eventsMissed = define(Counter, "tempool_events_missed_total",
		"Events that this agent had dropped before a reader got them.", "reader")
	eventsPosted = define(Counter, "tempool_events_posted_total",
		"Events that the receiver of --events-webhook has accepted.")
	eventPostsFailed = define(Counter, "tempool_event_posts_failed_total",
		"Requests to --events-webhook that failed; their events are posted again.")
	agentEpoch = define(Gauge, "tempool_agent_epoch",
		"Epoch of the agent's host: how often an agent has joined it. It grows when an agent starts, and when a lost host "+
			"returns.")
	logLinesDropped = define(Counter, "tempool_log_lines_dropped_total",
		"Lines that workers wrote and that are in no log: they came too fast, or the disk did not accept them.")
	spansExported = define(Counter, "tempool_trace_spans_exported_total",
		"Spans that the OpenTelemetry collector has accepted.")
	spansDropped = define(Counter, "tempool_trace_spans_dropped_total",
		"Sampled spans that were dropped because the OpenTelemetry collector was too slow or did not answer.")
	sdkDropped = define(Counter, "tempool_sdk_series_dropped_total",
		"Measurements of the Temporal SDK that were dropped because it had too many series.")
)

// Pools, as counted by this agent's gateway and activities.
var (
	callSeconds  = define(Histogram, pool.CallSeconds.Name, pool.CallSeconds.Help, "pool")
	queueLength  = define(Gauge, "tempool_pool_queue_length", "Calls that wait in this gateway for a worker.", "pool")
	queueSeconds = define(Histogram, pool.QueueSeconds.Name, pool.QueueSeconds.Help, "pool")
	callsRefused = define(Counter, "tempool_pool_calls_refused_total",
		"Calls that this gateway refused before a worker received them.", "pool", "code")
	mcpSessions = define(Gauge, "tempool_mcp_sessions",
		"Sessions of MCP clients at this gateway, without those that wait for their client's return (mcp.park).", "pool")
	mcpStreams = define(Gauge, "tempool_mcp_streams", "Streams of MCP clients that are open for what the server sends.",
		"pool")
	mcpReplays = define(Counter, "tempool_mcp_replays_total",
		"New processes that have continued the session of an MCP client.", "pool")
	startSeconds = define(Histogram, "tempool_pool_start_duration_seconds",
		"Time from the spawn of a process on this host until it was ready.", "pool")
	startFailures = define(Counter, "tempool_pool_start_failures_total", "Starts on this host that did not become ready.",
		"pool")
	decisions = define(Counter, "tempool_pool_decisions_total",
		"Decisions about workers that this host made without their workflow.", "pool", "decision")
	processesEnded = define(Counter, "tempool_pool_processes_ended_total",
		"Processes on this host that were ready and have ended, by outcome; killed ones did not stop within pool.stop_grace.",
		"pool", "outcome")
	probeSeconds = define(Histogram, "tempool_pool_probe_duration_seconds",
		"Duration of health checks on this host, failed ones included.", "pool")
	probeFailures = define(Counter, "tempool_pool_probe_failures_total", "Failed health checks on this host.", "pool")
)

// Sessions, on this host; those of a store in Redis are counted by the agent that got the request.
var (
	sessionsLive = define(Gauge, "tempool_session_store_live",
		"Live sessions of the stores that this agent has opened, with those in Redis of other hosts.", "store")
	sessionsCreated = define(Counter, "tempool_session_store_created_total",
		"Sessions that were created through this agent.", "store")
	sessionsRemoved = define(Counter, "tempool_session_store_removed_total",
		"Sessions that the store expired after their TTL, or evicted because it was full and on_full is evict.", "store",
		"reason")
	sessionSeconds = define(Histogram, "tempool_session_operation_duration_seconds",
		"Duration of operations on sessions through this agent.", "store", "operation")
	sessionFailures = define(Counter, "tempool_session_operation_failures_total",
		"Operations on sessions that failed because the store was full or did not answer.", "store", "code")
	sessionMoves = define(Counter, "tempool_session_migrations_total",
		"Sessions that migrations were to bind to a worker of this host, undone ones included; result is moved, or "+
			"superseded if another binding came first.", "result")
	sessionsNotReleased = define(Counter, "tempool_session_release_failures_total",
		"Sessions whose process ended gracefully without releasing them: the hook session.release failed, or drain_timeout "+
			"was over.", "pool")
	affinityLookups = define(Counter, "tempool_session_affinity_lookups_total",
		"Lookups of the worker that last served the session of a call; result is hit if it was known, else miss.", "pool",
		"result")
	affinityBindings = define(Gauge, "tempool_session_affinity_bindings",
		"Sessions that are bound to the worker that last served them.", "pool")
)

// Pools, as reported by their workflows. Every agent that has or had a worker of the pool serves the same values.
var (
	poolSize   = define(Gauge, "tempool_pool_size", "Workers the pool should have, on all hosts.", "pool")
	poolWanted = define(Gauge, "tempool_pool_workers_wanted",
		"Workers wanted for the demand of all hosts, within the bounds of [scale]; the reason says why the pool has its "+
			"size. Only for pools that follow demand.", "pool", "reason")
	poolReady = define(Gauge, "tempool_pool_ready", "Workers of the pool that are ready or busy, on all hosts.",
		"pool")
	poolWorkers = define(Gauge, "tempool_pool_workers",
		"Workers of the pool by their last reported state, on all hosts. Busy workers count as ready.", "pool", "state")
	poolResting = define(Gauge, "tempool_pool_resting",
		"Workers of the pool that stay down until an operator restarts them: they gave up, or were stopped.", "pool")
	poolOutOfService = define(Gauge, "tempool_pool_out_of_service",
		"Workers of the pool that are out of service, by reason, on all hosts.", "pool", "reason")
	poolStartsHeld = define(Gauge, "tempool_pool_starts_held",
		"1 while the pool's circuit breaker is open: too many starts failed, and only one start at a time is attempted.",
		"pool")
	poolRolloutHalted = define(Gauge, "tempool_pool_rollout_halted",
		"1 while a rolling restart is halted because a worker did not become ready again, else 0.", "pool")
)

// Transitions of workers, as this agent runs their workflows. Each is counted by the agent that ran it, so add up all
// agents.
var (
	transitionCount = define(Counter, "tempool_pool_transitions_total",
		"Transitions of workers, of those workflow tasks that this agent ran.", "pool", "from", "to")
	transitionSeconds = define(Counter, "tempool_pool_transition_seconds_total",
		"Time that workers had spent in the state from before these transitions.", "pool", "from", "to")
)

// Histories of workflows, as Temporal reports them.
var (
	poolHistory = define(Gauge, "tempool_pool_history_events",
		"Length of the history of the pool's workflow run. Temporal terminates a run at 51,200 events; Tempool continues "+
			"it as new before 8,192.", "pool")
	workerHistory = define(Gauge, "tempool_worker_history_events", "Length of the history of the worker's workflow run.",
		"pool", "worker")
)

// Workers of this host.
var (
	workerState = define(Gauge, "tempool_worker_state",
		"1 for the worker's state on this host, 0 for all other states.", "pool", "worker", "state")
	workerHealthy = define(Gauge, "tempool_worker_healthy",
		"1 if the worker's last health check passed, or none has run yet; else 0.", "pool", "worker")
	workerScore   = define(Gauge, "tempool_worker_score", "Health score of the worker, 0 to 100.", "pool", "worker")
	workerFailsIn = define(Gauge, "tempool_worker_time_to_failure_seconds",
		"Time until the worker reaches a limit at the present trend of its memory or score, at most a day. Only of workers "+
			"whose failure is in sight.", "pool", "worker")
	workerIncarnation = define(Gauge, "tempool_worker_incarnation", "Number of the worker's process, counted from 1.",
		"pool", "worker")
	workerStart = define(Gauge, "tempool_worker_start_time_seconds",
		"Start time of the worker's process, in Unix time.", "pool", "worker")
	workerRequests = define(Counter, "tempool_worker_requests_total",
		"Calls the worker received, including failed ones.", "pool", "worker")
	workerFailed = define(Counter, "tempool_worker_requests_failed_total", "Calls the worker received that failed.",
		"pool", "worker")
	workerCallSeconds = define(Counter, "tempool_worker_call_seconds_total", "Time the worker spent on calls.", "pool",
		"worker")
	workerInFlight = define(Gauge, "tempool_worker_requests_in_flight", "Calls in flight on the worker.", "pool",
		"worker")
	workerMemory = define(Gauge, "tempool_worker_memory_bytes",
		"Memory that the worker's process tree costs the host: PSS, which counts shared pages once, or RSS where PSS "+
			"cannot be read.", "pool", "worker")
	workerCPU = define(Gauge, "tempool_worker_cpu_cores",
		"CPU usage of the worker's process tree between its last two samples; 1 is one core.", "pool", "worker")
	workerFiles = define(Gauge, "tempool_worker_open_files", "Open files of the worker's process tree.", "pool",
		"worker")
	workerThreads  = define(Gauge, "tempool_worker_threads", "Threads of the worker's process tree.", "pool", "worker")
	workerReceived = define(Counter, "tempool_worker_network_receive_bytes_total",
		"Bytes that the worker's process tree has received from the network. Only of process trees with a network "+
			"namespace of their own, such as containers.", "pool", "worker")
	workerSent = define(Counter, "tempool_worker_network_transmit_bytes_total",
		"Bytes that the worker's process tree has sent to the network. Only of process trees with a network namespace of "+
			"their own, such as containers.", "pool", "worker")
	workerCounted = define(Counter, "tempool_worker_counted_total",
		"Counters that the program keeps with its SDK, by name, from 0 with each incarnation.", "pool", "worker", "counter")
	workerGranted = define(Counter, "tempool_worker_leases_granted_total",
		"Leases on the worker that this gateway acquired or was shown.", "pool", "worker")
	workerRefused = define(Counter, "tempool_worker_leases_refused_total",
		"Checkouts through this gateway that the worker refused.", "pool", "worker")
	workerRestarts = define(Counter, "tempool_worker_restarts_total",
		"Processes of the worker that ended without a rotation, since the worker exists and on all hosts, by reason.", "pool",
		"worker", "reason")
	workerRotations = define(Counter, "tempool_worker_rotations_total",
		"Processes of the worker that were replaced by a rotation, since the worker exists and on all hosts, by reason.",
		"pool", "worker", "reason")
)
