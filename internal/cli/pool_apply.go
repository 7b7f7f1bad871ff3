package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

func (a *app) poolApplyCommand() *cobra.Command {
	var s spec.Spec
	var wait waitFlags
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "apply -f FILE",
		Short: "Give a running pool a new specification and roll it out",
		Long: `Give a running pool a new specification and wait until its workers run on it. They are restarted at most
rotation.max_unavailable at a time; one that does not come back halts the rollout. A new size alone restarts nobody.`,
		Example: `  ctl pool apply -f pool.toml
  ctl pool apply -f pool.toml --no-wait`,
		Args: noArguments,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		result, err := a.apply(ctx, cp, s)
		if err != nil {
			return err
		}
		name := s.Pool.Name
		if !wait.skip && result.Changed {
			if err := a.awaitRollout(ctx, cp, name, wait.limit); err != nil {
				return err
			}
		}
		return a.printResult(result, func(w io.Writer) error {
			text := "pool %s runs on spec version %d\n"
			switch {
			case !result.Changed:
				text = "pool %s runs on that spec already, version %d; no worker restarts\n"
			case wait.skip:
				text = "pool %s rolls spec version %d out; ctl pool status %[1]s shows how far it is\n"
			}
			_, err := fmt.Fprintf(w, text, name, result.SpecVersion)
			return err
		})
	})
	a.specFile(c, &s)
	wait.flags(c, defaultRolloutWait, "until the rollout is done")
	return c
}

func (a *app) apply(ctx context.Context, cp controlPlane, s spec.Spec) (api.ApplyResult, error) {
	request, cancel := a.request(ctx)
	defer cancel()
	return cp.Pool(s.Pool.Name).Apply(request, s)
}

// awaitRollout waits until the pool has no rollout any more. One that was halted is a failure.
func (a *app) awaitRollout(ctx context.Context, cp controlPlane, name string, limit time.Duration) error {
	var latest api.PoolStatus
	err := a.await(ctx, limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(name).Status(ctx)
		if err != nil {
			return false, err
		}
		latest = status
		if status.Stopping {
			return false, api.Errorf(api.CodeDraining, "pool %s is stopping, as somebody asked it to; the rollout ended with it", name)
		}
		if status.Rollout == nil {
			return true, nil
		}
		if status.Rollout.Halted != "" {
			return false, a.haltedRolloutError(ctx, cp, name, status)
		}
		a.showProgress(name + ": " + rolloutSummary(status.Rollout) + restartingSummary(status))
		return false, nil
	})
	var up *waitTimeout
	if errors.As(err, &up) {
		text := "not answered"
		if latest.Rollout != nil {
			text = rolloutSummary(latest.Rollout) + restartingSummary(latest)
		}
		return api.Errorf(codeTimeout, "the rollout of pool %s is not done after %s (%s); it goes on, and ctl pool status %s shows how far it is",
			name, formatDuration(limit), text, name)
	}
	return err
}

// restartingSummary says how the workers that restart now fare.
func restartingSummary(status api.PoolStatus) string {
	text := ""
	for _, slot := range status.Rollout.Current {
		for _, w := range status.Workers {
			if w.Slot == slot && !inService(w.State) {
				text += fmt.Sprintf("; %d is %s: %s", slot, w.State, oneLine(w.Reason, 100))
			}
		}
	}
	return text
}

// haltedRolloutError is the failure of a rollout that went no further, with the log of the worker that did not come back.
func (a *app) haltedRolloutError(ctx context.Context, cp controlPlane, name string, status api.PoolStatus) error {
	why := strings.TrimRight(status.Rollout.Halted, "\n")
	for _, w := range status.Workers {
		if !w.Resting {
			continue
		}
		transitions, err := cp.Pool(name).History(ctx, w.Slot)
		if err != nil {
			continue // the pool's own words have to do
		}
		if failure, found := lastFailure(transitions); found && !strings.Contains(why, failure.Reason) {
			why += fmt.Sprintf("\n%s %s: %s", api.WorkerName(name, w.Slot), w.State, indentLines(failure.Reason))
		}
	}
	return api.Errorf(api.CodeStartFailed,
		"the rollout of pool %s (%s) went no further, with %s done: %s\nMend the cause and run ctl pool apply -f FILE; the workers it did not come to serve on as they are",
		name, status.Rollout.Reason, plural(status.Rollout.Done, "worker"), why)
}
