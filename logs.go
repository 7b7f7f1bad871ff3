package tempool

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/transport"
)

// LogOptions select lines of logs.
type LogOptions struct {
	// Worker is the slot of the only worker; nil for all workers of the pool.
	Worker *int
	// Follow continues with new lines until the context ends, whatever happens to processes and agents.
	Follow bool
	// Previous selects each worker's newest incarnation that has ended.
	Previous bool
	// Since leaves earlier lines out.
	Since time.Time
	// Tail is the most lines of each worker, the newest ones; negative for all.
	Tail int
	// Unreachable is called for each host whose gateway does not answer, one at a time and not during a call of yield;
	// nil ignores them.
	Unreachable func(endpoint string, err error)
}

// Logs calls yield with the lines that the processes of the pool wrote, on all hosts whose gateways answer, one call at
// a time. Without Follow they are in the order of their times. It needs the right read. It fails with pool_not_found,
// worker_not_found, and with the error of a gateway if none answers.
func (p *Pool) Logs(ctx context.Context, o LogOptions, yield func(api.LogLine)) error {
	if err := p.validName(); err != nil {
		return err
	}
	endpoints, status, err := p.logEndpoints(ctx)
	if err != nil {
		return err
	}
	if o.Worker != nil && status != nil &&
		!slices.ContainsFunc(status.Workers, func(w api.RosterEntry) bool { return w.Slot == *o.Worker }) {
		return api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; tempool ps %s lists its "+
			"workers", p.name, *o.Worker,
			p.name)
	}
	if o.Follow {
		return p.followLogs(ctx, o, endpoints, yield)
	}
	lines, err := readAnswering(endpoints, o.Unreachable, func(endpoint string) (lines []api.LogLine, err error) {
		err = p.readLogs(ctx, endpoint, o, func(line api.LogLine) { lines = append(lines, line) })
		return lines, err
	})
	if err != nil {
		return err
	}
	for _, line := range selectLines(lines, o) {
		yield(line)
	}
	return nil
}

// logEndpoints lists the gateways that may have logs of the pool: those of its workers and those of all other hosts,
// which workers may have left. status is nil if the client knows only fixed gateways.
func (p *Pool) logEndpoints(ctx context.Context) (endpoints []string, status *api.PoolStatus, err error) {
	if p.client.fixed != nil {
		return p.client.gateways, nil, nil
	}
	current, err := p.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	endpoints = current.Endpoints()
	hosts, err := p.client.Hosts(ctx)
	for _, host := range hosts {
		if agent := host.Heartbeat.Agent; agent != nil && agent.Endpoint != "" &&
			!slices.Contains(endpoints, agent.Endpoint) {
			endpoints = append(endpoints, agent.Endpoint)
		}
	}
	if len(endpoints) > 0 {
		err = nil // the other hosts are a bonus
	} else if err == nil {
		err = api.Errorf(api.CodeUnavailable, "no agent that could have logs of pool %s is running; start one", p.name)
	}
	return endpoints, &current, err
}

// logRequest is the request to one gateway.
func (p *Pool) logRequest(o LogOptions) transport.Request {
	query := url.Values{"follow": {strconv.FormatBool(o.Follow)}, "previous": {strconv.FormatBool(o.Previous)}}
	path := "/v1/pools/" + p.name + "/logs"
	if o.Worker != nil {
		path = "/v1/workers/" + p.name + "/" + strconv.Itoa(*o.Worker) + "/logs"
		if p.client.fixed == nil { // else the gateway refers to the host that has the worker
			query.Set("here", "true")
		}
	}
	if !o.Since.IsZero() {
		query.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	if o.Tail >= 0 {
		query.Set("tail", strconv.Itoa(o.Tail))
	}
	return transport.Request{Method: http.MethodGet, Path: path + "?" + query.Encode()}
}

// readLogs reads what one gateway has.
func (p *Pool) readLogs(ctx context.Context, endpoint string, o LogOptions, yield func(api.LogLine)) error {
	return p.client.readLines(ctx, endpoint, p.logRequest(o), nil, func(text []byte) error {
		if len(text) == 0 {
			return nil // a keep-alive
		}
		var line api.LogLine
		if err := json.Unmarshal(text, &line); err != nil {
			return api.Errorf(api.CodeUnavailable, "the response of %s is not a log: %w", redact.URLs(endpoint), err)
		}
		yield(line)
		return nil
	})
}

// selectLines sorts the lines of all hosts, and keeps those that o asks for of a worker that was on more than one.
func selectLines(lines []api.LogLine, o LogOptions) []api.LogLine {
	newest := map[string]int64{} // incarnation by worker
	count := map[string]int{}
	for _, line := range lines {
		newest[line.Worker] = max(newest[line.Worker], line.Incarnation)
		count[line.Worker]++
	}
	slices.SortStableFunc(lines, func(a, b api.LogLine) int {
		if a.Worker == b.Worker && a.Host == b.Host {
			return cmp.Compare(a.Seq, b.Seq) // even if the clock was changed
		}
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Worker, b.Worker), strings.Compare(a.Host, b.Host))
	})
	return slices.DeleteFunc(lines, func(line api.LogLine) bool {
		surplus := o.Tail >= 0 && count[line.Worker] > o.Tail
		count[line.Worker]--
		return surplus || o.Previous && line.Incarnation != newest[line.Worker]
	})
}

// followLogs follows the logs on all hosts, those included that get workers of the pool later, until ctx ends.
func (p *Pool) followLogs(ctx context.Context, o LogOptions, known []string, yield func(api.LogLine)) error {
	var one sync.Mutex // yields one line, and reports one failure, at a time
	began := time.Now()
	follower{
		endpoints: func(ctx context.Context) ([]string, error) {
			if found, _, err := p.logEndpoints(ctx); err == nil {
				known = found
			}
			return known, nil
		},
		begin: func(endpoint string, late bool) streamReader {
			own := o
			if late {
				own.Tail, own.Since = -1, began
			}
			return p.hostLog(endpoint, own, func(line api.LogLine) {
				one.Lock()
				defer one.Unlock()
				yield(line)
			})
		},
		failed: func(endpoint string, err error) {
			if o.Unreachable != nil {
				one.Lock()
				defer one.Unlock()
				o.Unreachable(endpoint, err)
			}
		},
	}.run(ctx)
	return ctx.Err()
}

// hostLog reads the log on one host, and at each call continues after the lines that it has read.
func (p *Pool) hostLog(endpoint string, o LogOptions, yield func(api.LogLine)) streamReader {
	last := map[string]int64{} // sequence number by worker
	return func(ctx context.Context, answered func()) error {
		return p.readLogs(ctx, endpoint, o, func(line api.LogLine) {
			answered()
			if line.Seq > last[line.Worker] {
				last[line.Worker] = line.Seq
				if o.Since.Before(line.At) {
					o.Since, o.Tail = line.At.Add(-streamIdleTimeout), -1 // lines of another worker may be behind
				}
				yield(line)
			}
		})
	}
}
