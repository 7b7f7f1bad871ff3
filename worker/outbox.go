package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// An agent collects what it reports to a pool for announceEach of what its last report had, and at least
	// announceDelay: each message costs the pool a workflow task, and the start of a large pool needs those for its
	// workers.
	announceDelay    = 100 * time.Millisecond
	announceMaxDelay = 500 * time.Millisecond
	announceEach     = 25 * time.Millisecond
	// deliveryTimeout bounds one attempt to deliver a message; between two attempts deliveryPause doubles up to
	// deliveryMaxPause.
	deliveryTimeout  = 5 * time.Second
	deliveryPause    = 200 * time.Millisecond
	deliveryMaxPause = 5 * time.Second
	// maxReportedFiles bounds the files named in one signal.
	maxReportedFiles = 24
)

// outbox delivers what this agent observes to the workflows of workers and pools, each message until Temporal has
// accepted it, or rejected it permanently. Only the newest message of a kind waits, so an outbox stays small while
// Temporal is away.
type outbox struct {
	signal signalOnce
	log    *slog.Logger

	mu         sync.Mutex
	events     map[eventTarget][]api.ProcessEvent
	started    map[string][]api.StartedProcess // by pool
	demand     map[string][]api.Demand         // by pool
	pressure   map[string][]api.MemoryPressure // by pool
	files      map[string][]string             // that have changed, by pool
	from       func() api.ProcessesStarted     // the sender, without processes
	deliveries sync.WaitGroup
	life       context.Context // of the deliveries
	end        context.CancelFunc
}

type eventTarget struct{ worker, runID string }

func newOutbox(signal signalOnce, from func() api.ProcessesStarted, log *slog.Logger) *outbox {
	o := &outbox{signal: signal, from: from, log: log, events: map[eventTarget][]api.ProcessEvent{},
		started: map[string][]api.StartedProcess{}, demand: map[string][]api.Demand{},
		pressure: map[string][]api.MemoryPressure{}, files: map[string][]string{}}
	o.life, o.end = context.WithCancel(context.Background())
	return o
}

// notify delivers an observation to a worker's workflow. It replaces one of the same kind about the same incarnation
// that still waits.
func (o *outbox) notify(worker, runID string, e api.ProcessEvent) {
	same := func(w api.ProcessEvent) bool { return w.Incarnation == e.Incarnation && w.Event == e.Event }
	enqueue(o, o.events, eventTarget{worker, runID}, []api.ProcessEvent{e}, same, api.PoolWorkflowID("")+worker,
		api.SignalProcessEvents, nil, func(events []api.ProcessEvent) any {
			return api.ProcessEvents{RunID: runID, Events: events}
		})
}

// announce reports a process to the pool of its worker, with others that start at that time.
func (o *outbox) announce(worker string, p api.StartedProcess) {
	pool, slot, err := api.ParseWorkerName(worker)
	if err != nil {
		return // it belongs to no pool
	}
	p.Slot = slot
	same := func(w api.StartedProcess) bool { return w.Slot == slot }
	delay := announceDelay
	enqueue(o, o.started, pool, []api.StartedProcess{p}, same, api.PoolWorkflowID(pool), api.SignalProcessesStarted,
		&delay, func(processes []api.StartedProcess) any {
			delay = min(max(announceDelay, time.Duration(len(processes))*announceEach), announceMaxDelay)
			message := o.from()
			message.Processes = processes
			return message
		})
}

// want reports the demand for a pool.
func (o *outbox) want(pool string, d api.Demand) {
	enqueueNewest(o, o.demand, pool, api.SignalDemand, d)
}

// pressed reports the memory pressure of this host to a pool.
func (o *outbox) pressed(pool string, m api.MemoryPressure) {
	enqueueNewest(o, o.pressure, pool, api.SignalMemoryPressure, m)
}

// enqueueNewest delivers a report to a pool. It replaces one of the kind that still waits.
func enqueueNewest[T any](o *outbox, waiting map[string][]T, pool, signal string, report T) {
	same := func(T) bool { return true }
	enqueue(o, waiting, pool, []T{report}, same, api.PoolWorkflowID(pool), signal, nil,
		func(newest []T) any { return newest[0] })
}

// changed reports changed files to their pool, with those that still wait.
func (o *outbox) changed(pool, host string, files []string) {
	again := map[string]bool{}
	for _, file := range files {
		again[file] = true
	}
	same := func(f string) bool { return again[f] }
	enqueue(o, o.files, pool, files, same, api.PoolWorkflowID(pool), api.SignalFilesChanged, nil,
		func(files []string) any {
			more := max(0, len(files)-maxReportedFiles)
			return api.FilesChanged{Pool: pool, Host: host, Files: files[:len(files)-more], More: more}
		})
}

// enqueue delivers new items with all that wait for the same target, as the message that they make. They replace
// waiting items that are about the same. waiting has a target for as long as something is delivered to it.
func enqueue[K comparable, T any](o *outbox, waiting map[K][]T, target K, added []T, same func(T) bool, workflowID,
	name string, delay *time.Duration, message func([]T) any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	items, delivering := waiting[target]
	waiting[target] = append(slices.DeleteFunc(items, same), added...)
	if delivering {
		return
	}
	o.deliveries.Go(func() {
		o.deliver(workflowID, name, delay, func() (any, bool) {
			items := waiting[target]
			if len(items) == 0 {
				delete(waiting, target)
				return nil, false
			}
			waiting[target] = nil
			return message(items), true
		})
	})
}

// deliver sends what next returns, which it calls under the lock, until there is nothing more; each time after a delay,
// if there is one, which next may change. A workflow that has closed gets nothing.
func (o *outbox) deliver(workflowID, name string, delay *time.Duration, next func() (any, bool)) {
	for {
		if delay != nil {
			sleep.For(o.life.Done(), *delay)
		}
		o.mu.Lock()
		message, more := next()
		o.mu.Unlock()
		if !more {
			return
		}
		// the same for each attempt: one that failed here may have arrived, and a failed probe must not count twice
		requestID := uuid.NewString()
		for pause := deliveryPause; ; pause = min(2*pause, deliveryMaxPause) {
			ctx, cancel := context.WithTimeout(o.life, deliveryTimeout)
			err := o.signal(ctx, workflowID, name, message, requestID)
			cancel()
			if err == nil || isNotFound(err) || o.life.Err() != nil {
				break
			}
			if isRefusal(err) {
				o.log.Error("message refused; it is dropped", "workflow", workflowID, "signal", name, "error", err)
				break
			}
			o.log.Warn("message not delivered; retrying", "workflow", workflowID, "signal", name, "error", err)
			sleep.For(o.life.Done(), pause)
		}
	}
}

func isNotFound(err error) bool {
	_, is := errors.AsType[*serviceerror.NotFound](err)
	return is
}

// isRefusal reports whether Temporal will never accept a message: it is too large or malformed, or this agent may not
// send it.
func isRefusal(err error) bool {
	_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
	_, denied := errors.AsType[*serviceerror.PermissionDenied](err)
	return invalid || denied || errors.Is(err, errNotEncoded)
}

var errNotEncoded = errors.New("the signal cannot be encoded")

// signalOnce signals a workflow. Temporal takes one signal for a request ID, so a signal that failed and may have
// arrived can be sent again.
type signalOnce func(ctx context.Context, workflowID, name string, message any, requestID string) error

// signalWith returns a signalOnce. The SDK's client makes a request ID for each call.
func signalWith(temporal client.Client, namespace, identity string, payloads converter.DataConverter) signalOnce {
	return func(ctx context.Context, workflowID, name string, message any, requestID string) error {
		input, err := converter.WithDataConverterSerializationContext(payloads, converter.WorkflowSerializationContext{
			Namespace: namespace, WorkflowID: workflowID,
		}).ToPayloads(message)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotEncoded, err)
		}
		_, err = temporal.WorkflowService().SignalWorkflowExecution(ctx, &workflowservice.SignalWorkflowExecutionRequest{
			Namespace: namespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: workflowID}, SignalName: name,
			Input:    input,
			Identity: identity, RequestId: requestID,
		})
		return err
	}
}

// close waits until all messages are delivered or ctx ends. Nothing may be reported or announced afterwards.
func (o *outbox) close(ctx context.Context) {
	delivered := sleep.Done(o.deliveries.Wait)
	select {
	case <-delivered:
	case <-ctx.Done():
	}
	o.end()
	<-delivered
}
