package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/process"
)

// overLimit has workers replaced whose processes have gone over a limit that nothing but this host's sampler holds.
type overLimit struct {
	temporal signaller
	host     string
	log      *slog.Logger
	retry    time.Duration // after a signal that failed
}

const overLimitRetry = 5 * time.Second

// watch waits until the process goes over a limit, and then asks its workflow, once, for a restart in good order. It returns when
// that has been asked, the process has ended, or ctx has.
func (o overLimit) watch(ctx context.Context, p *process.Process) {
	select {
	case <-p.Exceeded():
	case <-p.Done():
		return
	case <-ctx.Done():
		return
	}
	pool, slot, err := tempool.ParseWorkerName(p.Worker())
	if err != nil {
		o.log.Error("a process over its limit belongs to no worker", "worker", p.Worker(), "error", err)
		return
	}
	for !o.ask(ctx, tempool.WorkerWorkflowID(pool, slot), p) {
		select {
		case <-time.After(o.retry):
		case <-p.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// ask reports whether there is nothing left to ask.
func (o overLimit) ask(ctx context.Context, workflowID string, p *process.Process) bool {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	err := o.temporal.SignalWorkflow(ctx, workflowID, "", tempool.SignalRestart, tempool.Restart{
		Reason: p.Excess().Reason, By: "the agent of host " + o.host,
	})
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		o.log.Warn("the restart of a worker over its limit cannot be asked for yet", "worker", p.Worker(), "error", err)
		return false
	}
	return true
}
