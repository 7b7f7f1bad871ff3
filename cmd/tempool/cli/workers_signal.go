package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// workerSignal is a signal that changes the state of workers, with its command.
type workerSignal struct {
	signal        string
	short, long   string
	example       string
	waitsUntil    string
	reached       func(s lifecycle.State, resting bool) bool // the worker is where the signal leads
	applies       func(s lifecycle.State, resting bool) bool // the worker gets the signal
	notApplicable string                                     // why another worker does not get it
}

func isResting(_ lifecycle.State, resting bool) bool { return resting }

func isNotResting(_ lifecycle.State, resting bool) bool { return !resting }

var (
	drainSignal = workerSignal{
		signal: api.SignalDrain, waitsUntil: "until the workers have stopped",
		short: "Stop workers after their calls in flight and keep them stopped",
		long: `Drain one worker, or all workers of a pool. A draining worker accepts no new lease; calls in flight may finish within
rotation.drain_timeout; then its process stops. It stays stopped until tempool workers restart.`,
		example: `  tempool workers drain python/2
  tempool workers drain python --reason "maintenance of the model store"`,
		reached: isResting, applies: isNotResting,
	}
	stopSignal = workerSignal{
		signal: api.SignalStop, waitsUntil: "until the workers have stopped",
		short: "Stop workers immediately and keep them stopped",
		long: `Stop one worker, or all workers of a pool, without waiting for calls in flight: SIGTERM, then SIGKILL after
pool.stop_grace. It stays stopped until tempool workers restart.`,
		example: `  tempool workers stop python/2
  tempool workers stop python --reason "it returns wrong results"`,
		reached: isResting, applies: isNotResting,
	}
	suspendSignal = workerSignal{
		signal: api.SignalSuspend, waitsUntil: "until the workers are suspended",
		short: "Take workers out of service and keep their processes",
		long: `Suspend one worker, or all workers of a pool. A suspended worker takes no call and no
lease, and keeps its process and memory. The suspension begins at once: calls in flight, and the client that holds a lease, have rotation.drain_timeout to
finish; then calls are cut and the lease is fenced. No lease can be renewed in the meantime.`,
		example: `  tempool workers suspend python/2 --reason "attach a debugger"
  tempool workers suspend python --no-wait`,
		reached:       func(s lifecycle.State, _ bool) bool { return s == lifecycle.Suspended },
		applies:       func(s lifecycle.State, resting bool) bool { return !resting && s != lifecycle.Suspended },
		notApplicable: "has no process to suspend; run tempool workers restart to start one",
	}
	resumeSignal = workerSignal{
		signal: api.SignalResume, waitsUntil: "until the workers are no longer suspended",
		short: "Return suspended workers to service",
		long: `Resume one suspended worker, or all suspended workers of a pool. Resuming a worker that is not suspended yet
withdraws the suspension, and its lease continues.`,
		example: `  tempool workers resume python/2
  tempool workers resume python`,
		reached: func(s lifecycle.State, resting bool) bool { return s != lifecycle.Suspended && !resting },
		// A worker in one of the other states may have a suspend pending, which the signal cancels.
		applies: func(s lifecycle.State, resting bool) bool {
			switch s {
			case lifecycle.Suspended, lifecycle.Busy, lifecycle.Starting, lifecycle.Pending:
				return !resting
			}
			return false
		},
		notApplicable: "is not suspended; run tempool workers restart to start it again",
	}
)

// signalResult is the result of a command that signals workers.
type signalResult struct {
	Pool    string           `json:"pool"`
	Signal  string           `json:"signal"`
	Workers []signaledWorker `json:"workers"`
}

type signaledWorker struct {
	Worker      string          `json:"worker"`
	State       lifecycle.State `json:"state"`
	Incarnation int64           `json:"incarnation"`
	Reason      string          `json:"reason"`
}

func (a *app) signalCommand(s workerSignal) *cobra.Command {
	var reason string
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use: s.signal + " POOL[/N]", Short: s.short, Long: s.long, Example: s.example,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		control := api.Control{Reason: reason, By: operator()}
		targets, err := a.targets(ctx, cp, name, s, slot)
		if slot != nil && api.CodeOf(err) == api.CodeUnavailable { // a signal needs no agent
			if failure := a.signal(ctx, cp.Pool(name), *slot, s.signal, control); failure != nil {
				return failure
			}
			return api.Errorf(api.CodeUnavailable,
				"sent %s to %s, but no agent answers, so it takes effect when one runs again (%s)", s.signal, args[0], message(err))
		}
		if err != nil {
			return err
		}
		for _, t := range targets {
			if t.done {
				continue
			}
			if err := a.signal(ctx, cp.Pool(name), t.slot, s.signal, control); err != nil {
				return err
			}
		}
		if !wait.skip {
			if err := a.awaitStates(ctx, cp, name, s, targets, wait); err != nil {
				return err
			}
		}
		return a.printResult(newSignalResult(name, s, targets),
			func(text *strings.Builder) { writeSignalResult(text, s, targets, wait.skip) })
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the worker's history")
	wait.flags(c, defaultWait, s.waitsUntil)
	return c
}

func (a *app) signal(ctx context.Context, p pool, slot int, signal string, control api.Control) error {
	request, cancel := a.request(ctx)
	defer cancel()
	return p.Signal(request, slot, signal, control)
}

// target is a worker that gets a signal.
type target struct {
	slot        int
	worker      string
	state       api.WorkerState
	resting     bool
	lastRefusal string // the worker's newest refusal before the signal
	done        bool   // the worker is where the signal leads
	warned      bool   // tempool has warned that the worker is leased
}

// targets returns the workers that a signal goes to. It asks the workers for their states, since the pool's roster may
// lag behind the previous command.
func (a *app) targets(ctx context.Context, cp controlPlane, name string, s workerSignal, slot *int) ([]target, error) {
	status, err := send(ctx, a, cp.Pool(name).Status)
	if err != nil {
		return nil, err
	}
	targets, found := []target{}, false
	for _, w := range status.Workers {
		if w.Gone || w.Removing || (slot != nil && w.Slot != *slot) {
			continue
		}
		found = true
		state, err := a.workerState(ctx, cp, name, w.Slot)
		if err != nil {
			return nil, err
		}
		t := target{slot: w.Slot, worker: api.WorkerName(name, w.Slot), state: state, resting: w.Resting,
			lastRefusal: state.LastRefusal}
		switch {
		case s.applies(state.State, w.Resting):
			targets = append(targets, t)
		case slot != nil && s.reached(state.State, w.Resting):
			t.done = true
			targets = append(targets, t)
		case slot != nil:
			return nil, api.Errorf(api.CodeInvalid, "worker %s %s (it is %s)", t.worker, s.notApplicable, state.State)
		}
	}
	if slot != nil && !found {
		return nil, api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; tempool ps %s lists its "+
			"workers", name, *slot,
			name)
	}
	return targets, nil
}

// awaitStates waits until every target is where the signal leads. It fails if a worker refuses the signal.
func (a *app) awaitStates(ctx context.Context, cp controlPlane, name string, s workerSignal, targets []target,
	wait waitFlags) error {
	err := a.await(ctx, wait.limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(name).Status(ctx)
		if err != nil {
			return false, err
		}
		done := 0
		for i := range targets {
			if err := a.refresh(ctx, cp.Pool(name), s, status, &targets[i]); err != nil {
				return false, err
			}
			if targets[i].done {
				done++
			}
		}
		a.showProgress(fmt.Sprintf("%s %s: %d of %d", s.signal, name, done, len(targets)))
		return done == len(targets), nil
	})
	if errors.Is(err, errWaitTimeout) {
		return api.Errorf(codeTimeout,
			"%s of pool %s is not done after %s: %s; the signal stays in effect: run tempool ps %s to follow",
			s.signal, name, formatDuration(wait.limit), pendingTargets(targets), name)
	}
	return err
}

// refresh updates the state of one target.
func (a *app) refresh(ctx context.Context, p pool, s workerSignal, status api.PoolStatus, t *target) error {
	if t.done {
		return nil
	}
	state, err := p.State(ctx, t.slot)
	if err != nil {
		return err
	}
	t.state = state
	for _, w := range status.Workers {
		if w.Slot == t.slot {
			t.resting = w.Resting
		}
	}
	t.done = s.reached(state.State, t.resting)
	if !t.done && state.LastRefusal != t.lastRefusal && strings.Contains(state.LastRefusal, s.signal) {
		return api.Errorf(api.CodeInvalid, "worker %s refused to %s: %s", t.worker, s.signal, state.LastRefusal)
	}
	if !t.done && !t.warned && s.signal == api.SignalSuspend && state.Lease != nil {
		t.warned = true
		a.warn(fmt.Sprintf("worker %s is busy; it will be suspended when %s returns lease %s (or run tempool checkin "+
			"%[3]s), "+
			"or when rotation.drain_timeout is over", t.worker, state.Lease.Holder, state.Lease.ID))
	}
	return nil
}

// pendingTargets lists the targets that are not done, and why.
func pendingTargets(targets []target) string {
	var parts []string
	for _, t := range targets {
		if t.done {
			continue
		}
		part := fmt.Sprintf("%s is %s", t.worker, t.state.State)
		if t.state.Lease != nil {
			part += fmt.Sprintf(" under lease %s of %s", t.state.Lease.ID, t.state.Lease.Holder)
		}
		parts = append(parts, part)
		if len(parts) == 5 {
			parts = append(parts, "…")
			break
		}
	}
	return strings.Join(parts, ", ")
}

func newSignalResult(name string, s workerSignal, targets []target) signalResult {
	result := signalResult{Pool: name, Signal: s.signal, Workers: []signaledWorker{}}
	for _, t := range targets {
		result.Workers = append(result.Workers, signaledWorker{t.worker, t.state.State, t.state.Incarnation, t.state.Reason})
	}
	return result
}

func writeSignalResult(text *strings.Builder, s workerSignal, targets []target, noWait bool) {
	if len(targets) == 0 {
		fmt.Fprintf(text, "no worker to %s\n", s.signal)
	}
	for _, t := range targets {
		if noWait && !t.done {
			fmt.Fprintf(text, "sent %s to %s, which was %s\n", s.signal, t.worker, t.state.State)
		} else {
			fmt.Fprintf(text, "%s is %s\n", t.worker, t.state.State)
		}
	}
}
