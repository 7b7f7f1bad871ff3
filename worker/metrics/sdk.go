package metrics

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
)

// SDK collects the metrics of the Temporal SDK: set Handler in the client's options. It is safe for concurrent use.
type SDK struct {
	dropped atomic.Int64

	mu     sync.RWMutex
	series map[seriesKey]prometheus.Metric
}

// seriesKey is the name of a series, and its labels encoded as one string.
type seriesKey struct{ name, labels string }

// maxSeries bounds the series of the SDK. An agent has some hundreds: a few dozen metrics for each activity or request
// type.
const maxSeries = 5000

// sdkBuckets are the buckets of the SDK's timers, in seconds.
var sdkBuckets = []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10, 60}

// NewSDK makes an empty SDK.
func NewSDK() *SDK { return &SDK{series: make(map[seriesKey]prometheus.Metric)} }

// Handler returns the handler that the SDK reports to.
func (s *SDK) Handler() client.MetricsHandler { return sdkHandler{sdk: s} }

// Describe implements prometheus.Collector. It sends nothing, which makes the collector an unchecked one.
func (s *SDK) Describe(chan<- *prometheus.Desc) {}

func (s *SDK) Collect(out chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, one := range s.series {
		out <- one
	}
}

// seriesOf returns the handler's series of a name, and makes a missing one. It returns false if there are maxSeries
// already.
func seriesOf[M prometheus.Metric](h sdkHandler, name string, newSeries func(prometheus.Opts) M) (M, bool) {
	s, key := h.sdk, seriesKey{name, h.key}
	s.mu.RLock()
	found, known := s.series[key]
	s.mu.RUnlock()
	if known {
		return found.(M), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, known = s.series[key]; known {
		return found.(M), true
	}
	if len(s.series) >= maxSeries {
		var none M
		return none, false
	}
	made := newSeries(prometheus.Opts{Name: name, ConstLabels: h.labels(),
		Help: "A metric of the Temporal SDK; see https://docs.temporal.io/references/sdk-metrics."})
	s.series[key] = made
	return made, true
}

// sdkHandler implements client.MetricsHandler with the tags that the SDK has set so far.
type sdkHandler struct {
	sdk  *SDK
	tags []tag  // sorted by name
	key  string // the tags encoded as one string
}

type tag struct{ name, value string }

func (h sdkHandler) labels() prometheus.Labels {
	labels := make(prometheus.Labels, len(h.tags))
	for _, t := range h.tags {
		labels[t.name] = t.value
	}
	return labels
}

// poolQueues replaces the task queue of a pool in labels, so that pools that come and go leave no series behind.
var poolQueues = strings.TrimSuffix(api.PoolQueue(""), "/")

// WithTags implements client.MetricsHandler. The SDK calls it several times for each task and each request.
func (h sdkHandler) WithTags(tags map[string]string) client.MetricsHandler {
	all := append(make([]tag, 0, len(h.tags)+len(tags)), h.tags...)
	for name, value := range tags {
		if name == "task_queue" && strings.HasPrefix(value, poolQueues+"/") {
			value = poolQueues
		}
		t := tag{name, strings.ToValidUTF8(value, "\uFFFD")}
		at, known := slices.BinarySearchFunc(all, name, func(t tag, name string) int { return strings.Compare(t.name, name) })
		if known {
			all[at] = t
		} else {
			all = slices.Insert(all, at, t)
		}
	}
	size := 0
	for _, t := range all {
		size += len(t.name) + len(t.value) + 2
	}
	var key strings.Builder
	key.Grow(size)
	for _, t := range all {
		key.WriteByte(0)
		key.WriteString(t.name)
		key.WriteByte(1)
		key.WriteString(t.value)
	}
	return sdkHandler{sdk: h.sdk, tags: all, key: key.String()}
}

func (h sdkHandler) Counter(name string) client.MetricsCounter {
	counter, ok := seriesOf(h, name+"_total",
		func(o prometheus.Opts) prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts(o)) })
	if !ok {
		return droppedSeries{h.sdk}
	}
	return sdkCounter{counter}
}

func (h sdkHandler) Gauge(name string) client.MetricsGauge {
	gauge, ok := seriesOf(h, name,
		func(o prometheus.Opts) prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts(o)) })
	if !ok {
		return droppedSeries{h.sdk}
	}
	return sdkGauge{gauge}
}

func (h sdkHandler) Timer(name string) client.MetricsTimer {
	histogram, ok := seriesOf(h, name+"_seconds", func(o prometheus.Opts) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: o.Name, Help: o.Help, ConstLabels: o.ConstLabels,
			Buckets: sdkBuckets})
	})
	if !ok {
		return droppedSeries{h.sdk}
	}
	return sdkTimer{histogram}
}

type sdkCounter struct{ to prometheus.Counter }

// Inc ignores decrements, which a Prometheus counter rejects.
func (c sdkCounter) Inc(n int64) {
	if n > 0 {
		c.to.Add(float64(n))
	}
}

type sdkGauge struct{ to prometheus.Gauge }

func (g sdkGauge) Update(value float64) {
	if !math.IsNaN(value) {
		g.to.Set(value)
	}
}

type sdkTimer struct{ to prometheus.Histogram }

func (t sdkTimer) Record(d time.Duration) { t.to.Observe(d.Seconds()) }

// droppedSeries counts the measurements of series beyond maxSeries.
type droppedSeries struct{ sdk *SDK }

func (d droppedSeries) Inc(int64)            { d.sdk.dropped.Add(1) }
func (d droppedSeries) Update(float64)       { d.sdk.dropped.Add(1) }
func (d droppedSeries) Record(time.Duration) { d.sdk.dropped.Add(1) }
