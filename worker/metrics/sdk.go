package metrics

import (
	"maps"
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

// sdkHandler implements client.MetricsHandler with the tags that the SDK has set so far.
type sdkHandler struct {
	sdk    *SDK
	labels prometheus.Labels // not to be changed
	key    string            // the labels encoded as one string
}

// poolQueues replaces the task queue of a pool in labels, so that pools that come and go leave no series behind.
var poolQueues = strings.TrimSuffix(api.PoolQueue(""), "/")

// WithTags implements client.MetricsHandler. The SDK calls it several times for each task and each request.
func (h sdkHandler) WithTags(tags map[string]string) client.MetricsHandler {
	labels := make(prometheus.Labels, len(h.labels)+len(tags))
	maps.Copy(labels, h.labels)
	for name, value := range tags {
		if name == "task_queue" && strings.HasPrefix(value, poolQueues+"/") {
			value = poolQueues
		}
		labels[name] = strings.ToValidUTF8(value, "\uFFFD")
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		key.WriteString("\x00" + name + "\x01" + labels[name])
	}
	return sdkHandler{h.sdk, labels, key.String()}
}

// seriesOf returns the handler's series of a name, and makes a missing one unless there are maxSeries already.
func (h sdkHandler) seriesOf(name string, newSeries func(prometheus.Opts) prometheus.Metric) sdkSeries {
	s, key := h.sdk, seriesKey{name, h.key}
	s.mu.RLock()
	found, known := s.series[key]
	s.mu.RUnlock()
	if known {
		return sdkSeries{s, found}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, known = s.series[key]; !known && len(s.series) < maxSeries {
		found = newSeries(prometheus.Opts{Name: name, ConstLabels: h.labels,
			Help: "A metric of the Temporal SDK; see https://docs.temporal.io/references/sdk-metrics."})
		s.series[key] = found
	}
	return sdkSeries{s, found}
}

func (h sdkHandler) Counter(name string) client.MetricsCounter {
	return h.seriesOf(name+"_total", func(o prometheus.Opts) prometheus.Metric {
		return prometheus.NewCounter(prometheus.CounterOpts(o))
	})
}

func (h sdkHandler) Gauge(name string) client.MetricsGauge {
	return h.seriesOf(name, func(o prometheus.Opts) prometheus.Metric {
		return prometheus.NewGauge(prometheus.GaugeOpts(o))
	})
}

func (h sdkHandler) Timer(name string) client.MetricsTimer {
	return h.seriesOf(name+"_seconds", func(o prometheus.Opts) prometheus.Metric {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: o.Name, Help: o.Help, ConstLabels: o.ConstLabels,
			Buckets: sdkBuckets})
	})
}

// sdkSeries is a counter, a gauge or a timer of the SDK. Those beyond maxSeries have no metric, and their measurements
// are only counted.
type sdkSeries struct {
	sdk *SDK
	to  prometheus.Metric
}

// Inc ignores decrements, which a Prometheus counter rejects.
func (s sdkSeries) Inc(n int64) {
	if counter, ok := s.to.(prometheus.Counter); !ok {
		s.sdk.dropped.Add(1)
	} else if n > 0 {
		counter.Add(float64(n))
	}
}

func (s sdkSeries) Update(value float64) {
	if gauge, ok := s.to.(prometheus.Gauge); !ok {
		s.sdk.dropped.Add(1)
	} else if !math.IsNaN(value) {
		gauge.Set(value)
	}
}

func (s sdkSeries) Record(d time.Duration) {
	if histogram, ok := s.to.(prometheus.Histogram); !ok {
		s.sdk.dropped.Add(1)
	} else {
		histogram.Observe(d.Seconds())
	}
}
