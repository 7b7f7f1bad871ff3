package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// signalSpec is one of the commands that ask workers, by a signal, to go into some state.
type signalSpec struct {
	signal        string
	short, long   string
	example       string
	waitsUntil    string // what is waited for
	reached       func(s lifecycle.State, resting bool) bool
	applies       func(s lifecycle.State, resting bool) bool // the others are not asked
	notApplicable string                                     // why not, for one that is not where it is wanted either
}

func isResting(_ lifecycle.State, resting bool) bool { return resting }

func isNotResting(_ lifecycle.State, resting bool) bool { return !resting }

var (
	drainSpec = signalSpec{
		signal: api.SignalDrain, waitsUntil: "until the workers have ended",
		short: "Let workers finish what they do, end them and keep them down",
		long: `Drain one worker, or without --worker all of a pool: it takes no new lease, what is in flight may finish within
rotation.drain_timeout, then its process is stopped. It stays down until ctl workers restart.`,
		example: `  ctl workers drain python --worker 2
  ctl workers drain python --reason "maintenance of the model store"`,
		reached: isResting, applies: isNotResting,
	}
	stopSpec = signalSpec{
		signal: api.SignalStop, waitsUntil: "until the workers have ended",
		short: "End workers at once and keep them down",
		long: `Stop one worker, or without --worker all of a pool, without waiting for calls in flight: TERM, and KILL after pool.stop_grace.
It stays down until ctl workers restart.`,
		example: `  ctl workers stop python --worker 2
  ctl workers stop python --reason "it answers nonsense"`,
		reached: isResting, applies: isNotResting,
	}
	suspendSpec = signalSpec{
		signal: api.SignalSuspend, waitsUntil: "until the workers are suspended",
		short: "Take workers out of service but keep their processes",
		long: `Suspend one worker, or without --worker all of a pool: it takes no new lease, and keeps its process and memory. A busy worker
is suspended when its lease comes back.`,
		example: `  ctl workers suspend python --worker 2 --reason "attach a debugger"
  ctl workers suspend python --no-wait`,
		reached:       func(s lifecycle.State, _ bool) bool { return s == lifecycle.Suspended },
		applies:       func(s lifecycle.State, resting bool) bool { return !resting && s != lifecycle.Suspended },
		notApplicable: "has no process to suspend; ctl workers restart brings it back",
	}
	resumeSpec = signalSpec{
		signal: api.SignalResume, waitsUntil: "until the workers are no longer suspended",
		short: "Put suspended workers back into service",
		long: `Resume one suspended worker, or without --worker all suspended workers of a pool. One that waits for its lease to come back
before it is suspended stays in service.`,
		example: `  ctl workers resume python --worker 2
  ctl workers resume python`,
		reached: func(s lifecycle.State, _ bool) bool { return s != lifecycle.Suspended },
		// One that is not suspended yet may have been asked to be: then this calls that off.
		applies: func(s lifecycle.State, resting bool) bool {
			switch s {
			case lifecycle.Suspended, lifecycle.Busy, lifecycle.Starting, lifecycle.Pending:
				return !resting
			}
			return false
		},
	}
)

// signalResult is the result of a control.
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

func (a *app) signalCommand(c signalSpec) *cobra.Command {
	var who workerFlags
	var wait waitFlags
	command := a.controlPlaneCommand(&cobra.Command{
		Use: c.signal + " POOL", Short: c.short, Long: c.long, Example: c.example,
		Args:              exactly(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		pending, err := a.targets(ctx, cp, args[0], c, who.slot())
		if err != nil {
			return err
		}
		for _, t := range pending {
			if t.done {
				continue
			}
			if err := a.signal(ctx, cp, args[0], c, t, who.reason); err != nil {
				return err
			}
		}
		if !wait.skip {
			if err := a.awaitStates(ctx, cp, args[0], c, pending, wait); err != nil {
				return err
			}
		}
		return a.printResult(newSignalResult(args[0], c, pending), func(w io.Writer) error { return writeSignalResult(w, c, pending, wait.skip) })
	})
	who.flags(a, command)
	wait.flags(command, defaultWait, c.waitsUntil)
	return command
}

// target is one worker that is asked, and what is known of it.
type target struct {
	slot        int
	worker      string
	state       api.WorkerState
	resting     bool
	lastRefusal string // its newest refusal before it was asked
	done        bool   // where it is wanted: it need not be asked, or has done as it was asked
	warned      bool   // its holder was named
}

// targets lists the workers that a control goes to. The workers themselves say what state they are in: what the pool last
// heard may be older than the command before this one.
func (a *app) targets(ctx context.Context, cp controlPlane, name string, c signalSpec, slot *int) ([]target, error) {
	status, err := a.poolStatus(ctx, cp, name)
	if err != nil {
		return nil, err
	}
	targets, found := []target{}, false
	for _, w := range status.Workers {
		if w.Gone || w.Leaving || (slot != nil && w.Slot != *slot) {
			continue
		}
		found = true
		state, err := a.workerState(ctx, cp, name, w.Slot)
		if err != nil {
			return nil, err
		}
		t := target{slot: w.Slot, worker: api.WorkerName(name, w.Slot), state: state, resting: w.Resting, lastRefusal: state.LastRefusal}
		switch {
		case c.applies(state.State, w.Resting):
			targets = append(targets, t)
		case slot != nil && c.reached(state.State, w.Resting):
			t.done = true
			targets = append(targets, t)
		case slot != nil:
			return nil, api.Errorf(api.CodeInvalid, "worker %s %s (it is %s)", t.worker, c.notApplicable, state.State)
		}
	}
	if slot != nil && !found {
		return nil, api.Errorf(api.CodeWorkerNotFound, "pool %s has no worker %d; its workers are 0 to %d", name, *slot, status.Size-1)
	}
	return targets, nil
}

func (a *app) workerState(ctx context.Context, cp controlPlane, name string, slot int) (api.WorkerState, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	return cp.Pool(name).State(request, slot)
}

func (a *app) signal(ctx context.Context, cp controlPlane, name string, c signalSpec, t target, reason string) error {
	request, cancel := a.request(ctx)
	defer cancel()
	return cp.Pool(name).Signal(request, t.slot, c.signal, api.Control{Reason: reason, By: operator()})
}

// awaitStates waits until every target is where the control wants it, and fails when one refuses.
func (a *app) awaitStates(ctx context.Context, cp controlPlane, name string, c signalSpec, targets []target, wait waitFlags) error {
	err := a.await(ctx, wait.limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(name).Status(ctx)
		if err != nil {
			return false, err
		}
		there := 0
		for i := range targets {
			if err := a.refresh(ctx, cp.Pool(name), c, status, &targets[i]); err != nil {
				return false, err
			}
			if targets[i].done {
				there++
			}
		}
		a.showProgress(fmt.Sprintf("%s %s: %d of %d", c.signal, name, there, len(targets)))
		return there == len(targets), nil
	})
	var up *waitTimeout
	if errors.As(err, &up) {
		return api.Errorf(codeTimeout, "%s of pool %s is not done after %s: %s; it stands as asked, and ctl ps %s shows how far it is",
			c.signal, name, formatDuration(wait.limit), pendingTargets(targets), name)
	}
	return err
}

// refresh brings what is known of one target up to date.
func (a *app) refresh(ctx context.Context, p pool, c signalSpec, status api.PoolStatus, t *target) error {
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
	t.done = c.reached(state.State, t.resting)
	if !t.done && state.LastRefusal != t.lastRefusal && strings.Contains(state.LastRefusal, c.signal) {
		return api.Errorf(api.CodeInvalid, "worker %s refused to %s: %s", t.worker, c.signal, state.LastRefusal)
	}
	if !t.done && !t.warned && c.signal == api.SignalSuspend && state.Lease != nil {
		t.warned = true
		a.warn(busyWarning(*t))
	}
	return nil
}

// busyWarning says why a busy worker is not suspended yet.
func busyWarning(t target) string {
	return fmt.Sprintf("worker %s is busy: it is suspended when %s gives lease %s back (ctl checkin %[3]s does it for them)",
		t.worker, t.state.Lease.Holder, t.state.Lease.ID)
}

// pendingTargets names the targets that are not there yet, and why.
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

func newSignalResult(name string, c signalSpec, targets []target) signalResult {
	result := signalResult{Pool: name, Signal: c.signal, Workers: []signaledWorker{}}
	for _, t := range targets {
		result.Workers = append(result.Workers, signaledWorker{t.worker, t.state.State, t.state.Incarnation, t.state.Reason})
	}
	return result
}

func writeSignalResult(w io.Writer, c signalSpec, targets []target, blind bool) error {
	if len(targets) == 0 {
		_, err := fmt.Fprintf(w, "no worker to %s\n", c.signal)
		return err
	}
	for _, t := range targets {
		line := fmt.Sprintf("%s is %s", t.worker, t.state.State)
		if blind && !t.done {
			line = fmt.Sprintf("%s was asked to %s; it was %s", t.worker, c.signal, t.state.State)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
