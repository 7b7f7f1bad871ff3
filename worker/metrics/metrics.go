package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tempool/tempool/activities"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/sessions/affinity"
)

// Config says where the values come from. All of it is asked at scrapes, and must be quick and safe for concurrent use.
type Config struct {
	HostID   string
	Capacity int
	Gateway  interface{ Snapshot() gateway.Snapshot }
	// Processes are those of this host, ordered by worker and incarnation, as a process.Supervisor has them.
	Processes interface {
		List() []*process.Process
		Live() int
	}
	// Status asks a pool's workflow; it may take a moment.
	Status func(ctx context.Context, pool string) (api.PoolStatus, error)
	// Affinity counts how calls with sessions found their workers, by pool.
	Affinity interface {
		Pools() map[string]affinity.Looks
	}
	// SDK has what the Temporal SDK of this agent measured.
	SDK    *SDK
	Logger *slog.Logger
	// Score tells how fit a worker's process is, from 0 to 100.
	Score func(worker string, incarnation int64) float64
}

// Metrics is what one agent tells of itself.
type Metrics struct {
	stats   *workerStats
	handler http.Handler
}

// Bounds of scraping.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// New makes the metrics of config.
func New(config Config) *Metrics {
	known := newWorkerStats(func() map[string]bool { return workersIn(usageByWorker(config.Processes.List())) })
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), config.SDK,
		&collector{config: config, stats: known, pools: newPoolStatusCache(config.Status), sdk: config.SDK},
	)
	return &Metrics{stats: known, handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout, ErrorHandling: promhttp.ContinueOnError,
		ErrorLog: slog.NewLogLogger(config.Logger.Handler(), slog.LevelWarn),
	})}
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Observer wants to be told what the activities see of workers.
func (m *Metrics) Observer() activities.Observer { return m.stats }

// build is the values of tempool_build_info's labels.
func (c Config) build() []string {
	version, revision := "unknown", "unknown"
	if info, known := debug.ReadBuildInfo(); known {
		version = cmp.Or(info.Main.Version, "(devel)")
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = setting.Value
			}
		}
	}
	return []string{version, revision, runtime.Version()}
}
