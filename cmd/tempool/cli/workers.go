package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/lifecycle"
)

func (a *app) workersCommand() *cobra.Command {
	c := a.group(&cobra.Command{
		Use:   "workers",
		Short: "Restart, drain, suspend, stop and release workers, and show their usage",
		Example: `  tempool workers restart python
  tempool workers drain python/2 --reason "look at its memory"
  tempool workers stats`,
	}, a.restartCommand(), a.statsCommand(), a.releaseCommand())
	for _, signal := range workerSignals {
		c.AddCommand(a.signalCommand(signal))
	}
	return c
}

func (a *app) restartCommand() *cobra.Command {
	var reason string
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "restart POOL[/N]",
		Short: "Restart one worker, or all workers of a pool in turn",
		Long: `Restart one worker, or all workers of a pool, at most rotation.max_unavailable at a time. Each worker
drains first and starts again as a new incarnation. Workers that were drained, stopped or have given up start again,
too.`,
		Example: `  tempool workers restart python
  tempool workers restart python/0 --reason "new model on disk"`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		before, err := a.beforeRestart(ctx, cp.Pool(name), slot, wait)
		if err != nil {
			return err
		}
		result, err := ask(ctx, a, cp.Pool(name).Restart,
			api.RestartRequest{Worker: slot, Reason: reason, By: operator()})
		if err != nil {
			return err
		}
		workers := plural(len(result.Workers), "worker")
		switch {
		case wait.skip:
			return a.printMessage(result, "restarting %s of pool %s; run tempool ps %[2]s to follow", workers, name)
		case slot == nil:
			err = a.awaitRollout(ctx, cp, name, wait.limit)
		default:
			err = a.awaitReady(ctx, cp, name, wait.limit, before)
		}
		if err != nil {
			return err
		}
		return a.printMessage(result, "%s of pool %s restarted", workers, name)
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to record in the worker's history")
	wait.flags(c, defaultRolloutWait, "until the workers are ready again")
	return c
}

func (a *app) releaseCommand() *cobra.Command {
	return a.gatewayCommand(&cobra.Command{
		Use:   "release POOL/N",
		Short: "End the process of the key that a worker serves",
		Long: `End the process of the key that a worker serves (isolation.by = "key"), after its calls in flight. A clean
process follows, which serves any key. A worker whose process is clean stays as it is. The command needs the right
admin, or the socket of the agent.`,
		Example: `  tempool ps notebook
  tempool workers release notebook/0`,
	}, func(ctx context.Context, p *tempool.Pool, args []string) error {
		_, slot, _ := workerName(args[0]) // checkArguments has parsed it
		result, err := send(ctx, a, p.Worker(slot).ReleaseKey)
		switch {
		case err != nil:
			return err
		case result.Key == nil:
			return a.printMessage(result, "%s serves no key", result.Worker)
		}
		return a.printMessage(result, "%s ends the process of key %s after its calls (%d in flight)", result.Worker,
			result.Key.Key, result.InFlight)
	})
}

// beforeRestart prepares the wait for one worker to be ready under a higher incarnation than it has now. It returns nil
// without a single worker to wait for.
func (a *app) beforeRestart(ctx context.Context, p pool, slot *int, wait waitFlags) (*ready.Tracker, error) {
	if slot == nil || wait.skip {
		return nil, nil
	}
	status, err := send(ctx, a, p.Status)
	if err != nil {
		return nil, err
	}
	t := &ready.Tracker{From: map[int]int64{}, Starts: map[int]int64{}, Slots: []int{*slot}}
	for _, w := range status.Workers {
		if w.Slot != *slot {
			continue
		}
		state, err := ask(ctx, a, p.State, *slot)
		if err != nil && !errors.Is(err, api.ErrWorkerNotFound) { // the pool restarts a worker whose workflow was terminated
			return nil, err
		}
		t.From[*slot], t.Starts[*slot] = max(w.Incarnation, state.Incarnation), w.Starts
	}
	return t, nil
}

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

var workerSignals = []workerSignal{
	{
		signal: api.SignalDrain, waitsUntil: "until the workers have stopped",
		short: "Stop workers after their calls in flight and keep them stopped",
		long: `Drain one worker, or all workers of a pool. A draining worker accepts no new lease; calls in flight may
finish within rotation.drain_timeout; then its process stops. It stays stopped until tempool workers restart.`,
		example: `  tempool workers drain python/2
  tempool workers drain python --reason "maintenance of the model store"`,
		reached: isResting, applies: isNotResting,
	},
	{
		signal: api.SignalSuspend, waitsUntil: "until the workers are suspended",
		short: "Take workers out of service and keep their processes",
		long: `Suspend one worker, or all workers of a pool. A suspended worker takes no call and no lease, and keeps
its process and memory. The suspension begins at once: calls in flight, and the client that holds a lease, have
rotation.drain_timeout to finish; then calls are cut and the lease is fenced. No lease can be renewed in the
meantime.`,
		example: `  tempool workers suspend python/2 --reason "attach a debugger"
  tempool workers suspend python --no-wait`,
		reached:       func(s lifecycle.State, _ bool) bool { return s == lifecycle.Suspended },
		applies:       func(s lifecycle.State, resting bool) bool { return !resting && s != lifecycle.Suspended },
		notApplicable: "has no process to suspend; run tempool workers restart to start one",
	},
	{
		signal: api.SignalResume, waitsUntil: "until the workers are no longer suspended",
		short: "Return suspended workers to service",
		long: `Resume one suspended worker, or all suspended workers of a pool. Resuming a worker that is not suspended
yet withdraws the suspension, and its lease continues.`,
		example: `  tempool workers resume python/2
  tempool workers resume python`,
		reached: func(s lifecycle.State, resting bool) bool { return s != lifecycle.Suspended && !resting },
		// A worker in one of the other states may have a suspend pending, which the signal cancels.
		applies: func(s lifecycle.State, resting bool) bool {
			return !resting && (s == lifecycle.Suspended || s == lifecycle.Busy || s == lifecycle.Starting ||
				s == lifecycle.Pending)
		},
		notApplicable: "is not suspended; run tempool workers restart to start it again",
	},
	{
		signal: api.SignalStop, waitsUntil: "until the workers have stopped",
		short: "Stop workers immediately and keep them stopped",
		long: `Stop one worker, or all workers of a pool, without waiting for calls in flight: SIGTERM, then SIGKILL
after pool.stop_grace. It stays stopped until tempool workers restart.`,
		example: `  tempool workers stop python/2
  tempool workers stop python --reason "it returns wrong results"`,
		reached: isResting, applies: isNotResting,
	},
}

// signalResult is the result of a command that signals workers.
type signalResult struct {
	Pool    string            `json:"pool"`
	Signal  string            `json:"signal"`
	Workers []*signaledWorker `json:"workers"`
}

// signaledWorker is a worker that gets a signal.
type signaledWorker struct {
	Worker      string          `json:"worker"`
	State       lifecycle.State `json:"state"`
	Incarnation int64           `json:"incarnation"`
	Reason      string          `json:"reason"`

	slot    int
	resting bool
	lease   *api.Lease
	refusal string // the worker's newest one
	done    bool   // the worker is where the signal leads
	warned  bool   // tempool has warned that the worker is leased
	silent  error  // why the worker did not say its state
}

// update takes over the present state of the worker.
func (t *signaledWorker) update(s workerSignal, state api.WorkerState, resting bool) {
	t.State, t.Incarnation, t.Reason = state.State, state.Incarnation, state.Reason
	t.lease, t.refusal, t.resting = state.Lease, state.LastRefusal, resting
	t.done = s.reached(state.State, resting)
}

func (a *app) signalCommand(s workerSignal) *cobra.Command {
	var control api.Control
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use: s.signal + " POOL[/N]", Short: s.short, Long: s.long, Example: s.example,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		p := cp.Pool(name)
		control.By = operator()
		targets, err := a.targets(ctx, p, s, slot)
		if err != nil {
			return err
		}
		targets, failures := a.signal(ctx, p, s, control, targets)
		if len(targets) > 0 && !wait.skip {
			if err := a.awaitSignal(ctx, p, s, targets, wait); err != nil {
				return joined(append(failures, err))
			}
		}
		if len(targets) == 0 && len(failures) > 0 {
			return joined(failures)
		}
		return cmp.Or(joined(failures), a.printResult(signalResult{name, s.signal, targets}, func(text *strings.Builder) {
			if len(targets) == 0 {
				fmt.Fprintf(text, "no worker to %s\n", s.signal)
			}
			for _, t := range targets {
				if wait.skip && !t.done {
					fmt.Fprintf(text, "sent %s to %s, which was %s\n", s.signal, t.Worker, t.State)
				} else {
					fmt.Fprintf(text, "%s is %s\n", t.Worker, t.State)
				}
			}
		}))
	})
	c.Flags().StringVar(&control.Reason, "reason", "", "reason to record in the worker's history")
	wait.flags(c, defaultWait, s.waitsUntil)
	return c
}

// signal sends the signal to the targets that are not where it leads. It returns those to wait for, and the failures of
// the others.
func (a *app) signal(ctx context.Context, p pool, s workerSignal, control api.Control, targets []*signaledWorker) (
	answering []*signaledWorker, failures []error) {
	for _, t := range targets {
		var err error
		if !t.done {
			request, cancel := a.request(ctx)
			err = p.Signal(request, t.slot, s.signal, control)
			cancel()
		}
		switch {
		case err != nil:
			failures = append(failures, api.Errorf(cmp.Or(api.CodeOf(err), api.CodeUnavailable), "cannot send %s to %s: %s",
				s.signal, t.Worker, message(err)))
		case t.silent != nil:
			failures = append(failures, api.Errorf(api.CodeUnavailable,
				"sent %s to %s, but it does not answer, so the signal takes effect when an agent runs it again (%s)", s.signal,
				t.Worker, message(t.silent)))
		default:
			answering = append(answering, t)
		}
	}
	return answering, failures
}

// joined is one error with the messages of all failures, nil without any.
func joined(failures []error) error {
	if len(failures) < 2 {
		return errors.Join(failures...)
	}
	var text strings.Builder
	for _, err := range failures {
		fmt.Fprintln(&text, message(err))
	}
	return api.Errorf(cmp.Or(api.CodeOf(failures[0]), api.CodeUnavailable), "%s", strings.TrimSpace(text.String()))
}

// targets returns the workers that a signal goes to, and a single worker that is where it leads already. It asks the
// workers for their states, since the pool's roster may lag behind the previous command. A signal needs no agent, so it
// goes to those that do not answer, too.
func (a *app) targets(ctx context.Context, p pool, s workerSignal, slot *int) ([]*signaledWorker, error) {
	status, err := send(ctx, a, p.Status)
	if slot != nil && api.CodeOf(err) == api.CodeUnavailable {
		return []*signaledWorker{{Worker: api.WorkerName(p.Name(), *slot), slot: *slot, silent: err}}, nil
	}
	if err != nil {
		return nil, err
	}
	workers := slices.DeleteFunc(slices.Clone(status.Workers), func(w api.RosterEntry) bool {
		return w.Gone || w.Removing || slot != nil && w.Slot != *slot
	})
	states, failures := make([]api.WorkerState, len(workers)), make([]error, len(workers))
	sleep.Each(len(workers), concurrentQueries, func(i int) {
		states[i], failures[i] = ask(ctx, a, p.State, workers[i].Slot)
	})
	targets := []*signaledWorker{}
	for i, w := range workers {
		t := &signaledWorker{Worker: api.WorkerName(p.Name(), w.Slot), slot: w.Slot, silent: failures[i]}
		if t.silent != nil {
			if slot != nil && api.CodeOf(t.silent) != api.CodeUnavailable {
				return nil, t.silent
			}
			states[i] = api.WorkerState{State: w.State, Incarnation: w.Incarnation, Reason: w.Reason}
		}
		t.update(s, states[i], w.Resting)
		applies := t.silent != nil || s.applies(t.State, t.resting) ||
			t.done && t.resting && slices.Contains(status.StoppedForMemory, w.Slot) // else the pool starts it again
		if slot != nil && !applies && !t.done {
			return nil, api.Errorf(api.CodeInvalid, "worker %s %s (it is %s)", t.Worker, s.notApplicable, t.State)
		}
		t.done = t.done && !applies // resuming a busy worker withdraws a suspension
		if applies || slot != nil {
			targets = append(targets, t)
		}
	}
	if slot != nil && len(targets) == 0 {
		return nil, api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; tempool ps %[1]s lists its workers",
			p.Name(), *slot)
	}
	return targets, nil
}

// awaitSignal waits until every target is where the signal leads. It fails if a worker refuses the signal.
func (a *app) awaitSignal(ctx context.Context, p pool, s workerSignal, targets []*signaledWorker,
	wait waitFlags) error {
	var left []api.RosterEntry
	return a.await(ctx, wait.limit, func(ctx context.Context) (bool, error) {
		status, err := p.Status(ctx)
		if err != nil {
			return false, err
		}
		left = nil
		for _, t := range targets {
			if err := a.refresh(ctx, p, s, status, t); err != nil {
				return false, err
			}
			if !t.done {
				left = append(left, api.RosterEntry{Slot: t.slot, State: t.State, Reason: t.Reason})
			}
		}
		a.showProgress(fmt.Sprintf("%s %s: %d of %d", s.signal, p.Name(), len(targets)-len(left), len(targets)))
		return len(left) == 0, nil
	}, func() string {
		return fmt.Sprintf("%s of pool %s is not done after %s%s; the signal stays in effect: run tempool ps %[2]s to "+
			"follow", s.signal, p.Name(), formatDuration(wait.limit), ready.States(p.Name(), left))
	})
}

// refresh updates the state of one target.
func (a *app) refresh(ctx context.Context, p pool, s workerSignal, status api.PoolStatus, t *signaledWorker) error {
	if t.done {
		return nil
	}
	state, err := p.State(ctx, t.slot)
	if err != nil {
		return err
	}
	resting, refusal := t.resting, t.refusal
	for _, w := range status.Workers {
		if w.Slot == t.slot {
			resting = w.Resting
		}
	}
	t.update(s, state, resting)
	if !t.done && t.refusal != refusal && strings.Contains(t.refusal, s.signal) {
		return api.Errorf(api.CodeInvalid, "worker %s refused to %s: %s", t.Worker, s.signal, t.refusal)
	}
	if !t.done && !t.warned && s.signal == api.SignalSuspend && t.lease != nil {
		t.warned = true
		a.warn(fmt.Sprintf("worker %s is busy; it will be suspended when %s returns lease %s (or run tempool checkin "+
			"%[3]s), or when rotation.drain_timeout is over", t.Worker, t.lease.Holder, t.lease.ID))
	}
	return nil
}
