package tempool

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/internal/transport"
)

const (
	// streamIdleTimeout is after how long a stream without even a keep-alive counts as lost.
	streamIdleTimeout = 45 * time.Second
	// maxStreamLine bounds one line of a stream, in bytes.
	maxStreamLine = 1 << 20
	// streamRetry is the time between two attempts to read the stream of one agent, and agentsInterval between two
	// searches for agents that have started.
	streamRetry    = time.Second
	agentsInterval = 3 * time.Second
)

// follower follows a stream of every agent until its context ends: agents that start later included, over restarts of
// each.
type follower struct {
	// endpoints are the gateways of the agents that are up. Its error may be about some of them only.
	endpoints func(ctx context.Context) ([]string, error)
	// begin returns what reads the stream of one agent until it ends, and at each call continues where the last one ended.
	// It calls answered for what it reads. late says that the agent was not there at first.
	begin func(endpoint string, late bool) (read streamReader)
	// failed receives each failure once: that of one agent until it answers again or fails with another code, and with
	// endpoint "" that of finding agents.
	failed func(endpoint string, err error)
}

type streamReader func(ctx context.Context, answered func()) error

func (f follower) run(ctx context.Context) {
	var reading sync.WaitGroup
	defer reading.Wait()
	followed := map[string]bool{}
	reported := ""
	for late := false; ; late = true {
		endpoints, err := f.endpoints(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			f.failed("", err)
		}
		for _, endpoint := range endpoints {
			if followed[endpoint] {
				continue
			}
			followed[endpoint] = true
			read := f.begin(endpoint, late)
			reading.Go(func() { f.followOne(ctx, endpoint, read) })
		}
		if !sleep.For(ctx.Done(), agentsInterval) {
			return
		}
	}
}

func (f follower) followOne(ctx context.Context, endpoint string, read streamReader) {
	var last error
	for ctx.Err() == nil {
		err := read(ctx, func() { last = nil })
		if err != nil && ctx.Err() == nil && (last == nil || api.CodeOf(err) != api.CodeOf(last)) {
			f.failed(endpoint, err)
		}
		last = err
		sleep.For(ctx.Done(), streamRetry)
	}
}

// agentFailure is the failure to read from one agent.
type agentFailure struct {
	endpoint string
	err      error
}

// readAll reads from all agents, some at a time. What an agent has sent before it failed counts, too.
func readAll[T any](endpoints []string, read func(endpoint string) ([]T, error)) (all []T, failures []agentFailure) {
	parts, errs := make([][]T, len(endpoints)), make([]error, len(endpoints))
	sleep.Each(len(endpoints), concurrentQueries, func(i int) { parts[i], errs[i] = read(endpoints[i]) })
	for i, err := range errs {
		if err != nil {
			failures = append(failures, agentFailure{endpoints[i], err})
		}
	}
	return slices.Concat(parts...), failures
}

// readAnswering is readAll without the agents that do not answer: unreachable, unless it is nil, is called for each of
// them. It fails if none answers.
func readAnswering[T any](endpoints []string, unreachable func(endpoint string, err error),
	read func(endpoint string) ([]T, error)) ([]T, error) {
	all, failures := readAll(endpoints, read)
	for _, failure := range failures {
		if unreachable != nil {
			unreachable(failure.endpoint, failure.err)
		}
	}
	if len(failures) > 0 && len(failures) == len(endpoints) {
		return nil, failures[0].err
	}
	return all, nil
}

// readLines calls opened, unless it is nil, as soon as an agent answers, and take with each line of its answer, until
// that ends, take fails, or nothing comes for streamIdleTimeout.
func (c *Client) readLines(ctx context.Context, endpoint string, request transport.Request, opened func(),
	take func(line []byte) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := cmp.Or(c.idleTimeout, streamIdleTimeout)
	idle := time.AfterFunc(limit, func() {
		cancel(api.Errorf(api.CodeUnavailable, "the gateway at %s has stopped sending", redact.URLs(endpoint)))
	})
	defer idle.Stop()
	defer func() {
		if stopped := context.Cause(ctx); err != nil && errors.Is(stopped, api.ErrUnavailable) {
			err = stopped // to the transport it is a cancellation by the caller
		}
	}()
	reply, err := c.transport.Do(ctx, endpoint, request)
	if others := transport.OtherGateways(err); len(others) > 0 { // the one that has the worker
		reply, err = c.transport.Do(ctx, others[0], request)
	}
	if err != nil {
		return err
	}
	defer reply.Close()
	if opened != nil {
		opened()
	}
	lines := bufio.NewScanner(reply.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxStreamLine)
	for lines.Scan() {
		idle.Reset(limit)
		if err := take(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return reply.Interrupted(err)
	}
	return nil
}
