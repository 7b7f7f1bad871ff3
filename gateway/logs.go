package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/logs"
)

const (
	// logPace is the least time between two rounds of a followed log, and logKeepAlive the most between two writes to its
	// client.
	logPace      = 100 * time.Millisecond
	logKeepAlive = 15 * time.Second
	// MaxLogTail is the most lines per worker that a client may ask for with tail.
	MaxLogTail = 100_000
)

// logQuery is what a client asks of logs.
type logQuery struct {
	follow, previous, here bool
	since                  time.Time
	tail                   int // lines of each worker; -1 for all
}

func readLogQuery(query url.Values, now time.Time) (q logQuery, err error) {
	for name, flag := range map[string]*bool{"follow": &q.follow, "previous": &q.previous, "here": &q.here} {
		if *flag, err = isSet(query, name, false); err != nil {
			return q, err
		}
	}
	if q.tail, err = integer(query, "tail", -1, 0, MaxLogTail); err != nil { // without it the answer has all lines
		return q, err
	}
	if q.since, err = events.ParseSince(query.Get("since"), now); err != nil {
		return q, err
	}
	if q.follow && q.previous {
		return q, api.Errorf(api.CodeInvalid,
			"follow and previous are mutually exclusive: an incarnation that has ended writes no more")
	}
	return q, nil
}

func (g *Gateway) getWorkerLog(w http.ResponseWriter, r *http.Request) error {
	query, err := readLogQuery(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	worker := r.PathValue("pool") + "/" + r.PathValue("n")
	pool, slot, err := api.ParseWorkerName(worker)
	if err != nil {
		return api.Errorf(api.CodeWorkerNotFound, "%q is not a worker; the path is /v1/workers/POOL/N/logs", worker)
	}
	if !query.here {
		if err := g.isHere(r.Context(), pool, slot, worker); err != nil {
			return err
		}
	}
	return g.serveLogs(w, r, query, func() ([]string, error) { return []string{worker}, nil })
}

// getPoolLogs is GET /v1/pools/{pool}/logs: of all workers of the pool that this host has logs of.
func (g *Gateway) getPoolLogs(w http.ResponseWriter, r *http.Request) error {
	query, err := readLogQuery(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	prefix := r.PathValue("pool") + "/"
	return g.serveLogs(w, r, query, func() ([]string, error) {
		all, err := g.config.Logs.Workers()
		return slices.DeleteFunc(all, func(worker string) bool { return !strings.HasPrefix(worker, prefix) }), err
	})
}

// isHere fails with the host that has a worker, if that is another one. While Temporal does not answer, this host shows
// what it has.
func (g *Gateway) isHere(ctx context.Context, pool string, slot int, worker string) error {
	if slices.ContainsFunc(g.config.Processes.List(), func(p *process.Process) bool { return p.Worker() == worker }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	status, err := g.config.Control.Status(ctx, pool)
	if err != nil {
		known, _ := g.config.Logs.Workers()
		if slices.Contains(known, worker) {
			return nil
		}
		return err
	}
	for _, entry := range status.Workers {
		if entry.Slot != slot {
			continue
		}
		if entry.Host == "" || entry.Host == g.config.HostID || entry.Endpoint == "" {
			return nil
		}
		return api.OtherHostError{Host: entry.Host, Endpoint: entry.Endpoint, Coded: api.Errorf(api.CodeWorkerNotFound,
			"worker %s is on host %s; ask its gateway, %s, or add here=true for the lines that host %s has of it", worker,
			entry.Host, entry.Endpoint, g.config.HostID)}
	}
	return api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; see tempool ps "+
		"%s", status.Pool, slot, status.Pool)
}

// serveLogs answers with the logs of workers as lines of JSON, each an api.LogLine. A followed log goes on until the
// client leaves or the gateway closes; empty lines keep it alive.
func (g *Gateway) serveLogs(w http.ResponseWriter, r *http.Request, query logQuery,
	workers func() ([]string, error)) error {
	changed := g.config.Logs.Changed()
	names, err := workers()
	if err != nil {
		return err
	}
	answer := http.NewResponseController(w)
	_ = answer.SetReadDeadline(time.Time{}) // a log may be followed for days
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if query.follow { // what has an end is in flight until then
		defer context.AfterFunc(g.life, cancel)()
	}
	stream := logStream{g: g, ctx: ctx, out: json.NewEncoder(w), cursors: make(map[string]*logs.Cursor)}
	stream.out.SetEscapeHTML(false)
	keepAlive := time.NewTimer(logKeepAlive)
	defer keepAlive.Stop()
	follows := query.follow && r.Method != http.MethodHead
	for first := true; ; first = false {
		for _, worker := range names {
			if err := stream.send(worker, query); err != nil && first {
				panic(http.ErrAbortHandler) // the client sees that the answer is incomplete
			} else if err != nil {
				return nil
			}
		}
		if !follows || answer.Flush() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
			sleep.For(ctx.Done(), logPace) // and not for every line
		case <-keepAlive.C:
			if _, err := w.Write([]byte{'\n'}); err != nil {
				return nil
			}
			keepAlive.Reset(logKeepAlive)
		}
		changed, query = g.config.Logs.Changed(), logQuery{tail: -1}
		if names, err = workers(); err != nil || ctx.Err() != nil {
			return nil
		}
	}
}

// logStream writes logs to one client.
type logStream struct {
	g       *Gateway
	ctx     context.Context
	out     *json.Encoder
	cursors map[string]*logs.Cursor // by worker
}

func (s *logStream) write(worker string, l logs.Line) error {
	return s.out.Encode(api.LogLine{
		Worker: worker, Host: s.g.config.HostID, Incarnation: l.Incarnation, At: l.At, Stream: l.Stream, Text: l.Text,
		Seq: l.Seq,
	})
}

// send writes what a worker's log has beyond what was written of it.
func (s *logStream) send(worker string, query logQuery) (err error) {
	incarnation := int64(0)
	if query.previous {
		if incarnation, err = s.g.config.Logs.LastEnded(s.ctx, worker); err != nil || incarnation == 0 {
			return err
		}
	}
	cursor := s.cursors[worker]
	if cursor == nil { // at the begin, or it came to this host since
		cursor = &logs.Cursor{}
		s.cursors[worker] = cursor
	}
	var newest []logs.Line // if only these are wanted
	var failed error
	err = s.g.config.Logs.Read(s.ctx, worker, cursor, func(l logs.Line) bool {
		switch {
		case l.At.Before(query.since), incarnation != 0 && l.Incarnation != incarnation, query.tail == 0:
		case query.tail < 0:
			failed = s.write(worker, l)
		default:
			newest = append(newest, l)
			if len(newest) >= 2*query.tail {
				newest = slices.Clone(newest[len(newest)-query.tail:])
			}
		}
		return failed == nil
	})
	for _, l := range newest[max(0, len(newest)-max(query.tail, 0)):] {
		if failed == nil {
			failed = s.write(worker, l)
		}
	}
	return cmp.Or(err, failed)
}
