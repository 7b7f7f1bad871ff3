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

// killTimeout bounds the end of the processes that outlived StopTimeout, and then the delivery of the last messages.
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
	a.stopTaking()
	keep := a.config.KeepProcesses && !a.hasFailed.Load() // an agent that has failed may have lost its host id
	if !keep {
		close(a.stopping) // the workers are notified, and drain and stop their processes through this agent
		select {
		case <-sleep.Done(a.slots.processes.Wait):
		case <-ctx.Done():
			a.log.Warn("killing processes that did not end in time", "processes", a.processes.Live())
		}
	}
	err := a.release(ctx, keep)
	if a.webhook != nil {
		flushCtx, cancelFlush := context.WithTimeout(context.Background(), flushTimeout)
		defer cancelFlush()
		a.webhook.Flush(flushCtx)
	}
	a.log.Info("agent stopped")
	return err
}

// abandon ends an agent whose start has failed. One that was cancelled hands what it has taken over to the next agent,
// unless its workers may know of this one.
func (a *Agent) abandon(cancelled bool) {
	keep := cancelled && a.membership != nil && a.membership.epoch() == 0 && len(a.membership.request.Kept) > 0
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	a.stopTaking()
	_ = a.release(ctx, keep) // the error of the start matters
}

// stopTaking stops polling for processes and calls of pools.
func (a *Agent) stopTaking() {
	var placements sync.WaitGroup
	for _, w := range a.placement {
		placements.Go(w.Stop)
	}
	placements.Wait()
	a.stopPolling()
}

// release ends the processes, or hands them to the next agent, and then all parts of the agent that its start has
// opened. ctx bounds the calls in flight.
func (a *Agent) release(ctx context.Context, keep bool) (err error) {
	var leave api.LeaveRequest
	if a.gateway != nil {
		_ = a.gateway.Leave(ctx) // Close returns its error, too
		if keep {
			leave.Usage = a.host.Release()
			var cancel context.CancelFunc // also after calls that took StopTimeout, leases of MCP clients last on
			ctx, cancel = context.WithTimeout(context.Background(), killTimeout)
			defer cancel()
		}
		if err := a.gateway.Close(ctx); err != nil {
			a.log.Warn("closing the gateway failed", "error", err)
		}
	}
	a.stopBackground()
	a.goroutines.Wait()
	if keep {
		leave.Kept = a.handOver()
	}
	if a.processes != nil {
		killCtx, cancel := context.WithTimeout(context.Background(), killTimeout)
		defer cancel()
		err = a.processes.Close(killCtx)
		a.slots.processes.Wait()
		a.host.WaitMonitors()
	}
	if a.outbox != nil {
		closeCtx, cancel := context.WithTimeout(context.Background(), killTimeout)
		defer cancel()
		a.outbox.close(closeCtx)
	}
	if a.sweeper != nil { // it would poll the activity that notifies of its own end, and wait for its own workflow worker
		a.sweeper.Stop()
	}
	if a.membership != nil { // with no other process left; this agent's own workflow worker may have to answer
		a.membership.leave(leave)
	}
	for _, w := range a.serving {
		w.Stop()
	}
	a.polled.Wait()
	if a.stores != nil {
		a.hostCalls.Wait()
		err = errors.Join(err, a.stores.Close())
	}
	a.client.Close()
	a.traces.shutdown()
	return err
}
