package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/process"
)

// Config names the sources of the metrics. A scrape reads all of them; they must be fast, except Status, and safe for
// concurrent use.
type Config struct {
	HostID   string
	Capacity int
	Gateway  interface{ Snapshot() gateway.Snapshot }
	// Processes are those of this host, ordered by worker and incarnation, as in process.Supervisor.
	Processes interface {
		List() []*process.Process
		Live() int
		AbandonedFunctions() int
	}
	// Status queries a pool's workflow; it may take a moment.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
	// HistoryLength returns the length of a workflow's history, in events; it may take a moment.
	HistoryLength func(ctx context.Context, workflowID string) (int64, error)
	// Sessions counts what happens to sessions.
	Sessions *SessionStats
	// LiveSessions counts the live sessions, by the kind of their store; it may take a moment.
	LiveSessions func(ctx context.Context) map[string]int
	// Webhook counts the events that the agent posts; nil if it posts none.
	Webhook func() events.Delivery
	// Epoch returns the epoch of the agent's host.
	Epoch func() int64
	// LogLinesDropped counts the lines of workers' logs that were dropped.
	LogLinesDropped func() int64
	// Transitions counts the transitions of workers.
	Transitions *Transitions
	// Spans counts the spans that the agent exports; nil if it exports none.
	Spans func() (exported, dropped int64)
	// SDK holds the metrics of this agent's Temporal SDK.
	SDK    *SDK
	Logger *slog.Logger
	// Events takes what the activities see of the workers, beside its count.
	Events *events.Log
	// Assessment returns the assessment of an incarnation of this host; nil before the first.
	Assessment func(worker string, incarnation int64) *api.Assessment
}

// Metrics serves the metrics of one agent. The activities report to it.
type Metrics struct {
	*workerStats
	handler http.Handler
}

const (
	maxScrapes    = 4 // at once
	scrapeTimeout = 10 * time.Second
)

// New makes the metrics of config.
func New(config Config) *Metrics {
	stats := newWorkerStats(config.HostID, config.Events,
		func() map[string]workerUsage { return usageByWorker(config.Processes.List()) })
	registry := prometheus.NewRegistry()
	for _, v := range stats.vectors() {
		registry.MustRegister(v)
	}
	registry.MustRegister(config.Sessions.vectors()...)
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), config.SDK,
		config.Transitions,
		&collector{config: config, stats: stats, pools: newPoolStatuses(config.Status),
			lengths: newHistoryLengths(config.HistoryLength), live: newLiveSessions(config.LiveSessions)},
	)
	return &Metrics{stats, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout, ErrorHandling: promhttp.ContinueOnError,
		EnableOpenMetrics: config.Spans != nil, // whose exemplars name traces
		ErrorLog:          slog.NewLogLogger(config.Logger.Handler(), slog.LevelWarn),
	})}
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler { return m.handler }
