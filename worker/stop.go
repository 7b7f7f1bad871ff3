package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

// flushTimeout bounds the posting of the last events.
const flushTimeout = 5 * time.Second

// handOverTimeout bounds how long a worker may take to become quiet before it is handed over. One that does not must
// leave time to report its end.
const handOverTimeout = 10 * time.Second

// killTimeout bounds the end of the processes that outlived StopTimeout.
const killTimeout = 10 * time.Second

// Stop stops taking new processes, lets the workflows drain and stop the processes of this host, and ends the agent.
// The workflows place their next incarnation elsewhere. Processes that do not end within StopTimeout are killed. With
// KeepProcesses, the ready ones are handed to the next agent instead, once their calls in flight have ended.
func (a *Agent) Stop() error {
	a.stopOnce.Do(func() { a.stopErr = a.stop() })
	return a.stopErr
}

func (a *Agent) stop() error {
	a.log.Info("agent stopping", "processes", a.processes.Live())
	ctx, cancel := context.WithTimeout(context.Background(), a.config.StopTimeout)
	defer cancel()
	var placements sync.WaitGroup
	for _, w := range a.placement {
		placements.Go(w.Stop)
	}
	placements.Wait()
	a.poolQueues.close()
	keep := a.config.KeepProcesses && !a.hasFailed.Load() // an agent that has failed may have lost its host id
	ended := sleep.Done(a.slots.processes.Wait)
	if !keep {
		close(a.stopping) // the workers are notified, and drain and stop their processes through this agent
		select {
		case <-ended:
		case <-ctx.Done():
			a.log.Warn("killing processes that did not end in time", "processes", a.processes.Live())
		}
	}
	_ = a.gateway.Leave(ctx) // Close returns its error, too
	var leave api.LeaveRequest
	if keep {
		leave.Usage = a.host.Release()
	}
	if err := a.gateway.Close(ctx); err != nil {
		a.log.Warn("closing the gateway failed", "error", err)
	}
	a.stopBackground()
	a.goroutines.Wait()
	if keep {
		leave.Kept = a.handOver()
	}
	killCtx, cancelKill := context.WithTimeout(context.Background(), killTimeout)
	defer cancelKill()
	err := a.processes.Close(killCtx)
	<-ended
	a.host.WaitMonitors()
	a.outbox.close(killCtx)
	// or this agent would poll the activity that notifies of its own end, and wait for its own workflow worker
	a.sweeper.Stop()
	a.membership.leave(killCtx, leave) // with no other process left; this agent's own workflow worker may have to answer
	for _, w := range a.serving {
		w.Stop()
	}
	a.poolQueues.waitClosed()
	a.hostCalls.Wait()
	err = errors.Join(err, a.stores.Close())
	a.temporal.Close()
	a.traces.shutdown()
	if a.webhook != nil {
		flushCtx, cancelFlush := context.WithTimeout(context.Background(), flushTimeout)
		defer cancelFlush()
		a.webhook.Flush(flushCtx)
	}
	a.log.Info("agent stopped")
	return err
}

// cleanUp releases what a failed start has opened. One that was cancelled hands what it has taken over to the next
// agent, unless its workers may know of this one.
func (a *Agent) cleanUp(cancelled bool) {
	keep := cancelled && a.membership != nil && a.membership.epoch() == 0 && len(a.membership.request.Kept) > 0
	if a.membership != nil {
		a.membership.leave(context.Background(), api.LeaveRequest{})
	}
	for _, w := range append(a.placement, a.serving...) {
		w.Stop()
	}
	if a.sweeper != nil {
		a.sweeper.Stop()
	}
	a.poolQueues.close()
	a.stopBackground()
	a.goroutines.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if keep {
		_ = a.gateway.Leave(ctx)
		a.host.Release()
	}
	if a.gateway != nil {
		_ = a.gateway.Close(ctx) // the error of the start matters
	}
	if keep {
		a.handOver()
	}
	if a.processes != nil {
		_ = a.processes.Close(ctx)
	}
	if a.outbox != nil {
		a.host.WaitMonitors()
		a.outbox.close(ctx)
	}
	a.poolQueues.waitClosed()
	if a.stores != nil {
		a.hostCalls.Wait()
		_ = a.stores.Close()
	}
	a.client.Close()
	a.traces.shutdown()
}
