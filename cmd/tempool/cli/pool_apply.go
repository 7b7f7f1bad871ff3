package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
	"github.com/tempool/tempool/spec"
)

func (a *app) poolApplyCommand() *cobra.Command {
	var request api.ApplyRequest
	var wait waitFlags
	c := a.specCommand(&cobra.Command{
		Use:   "apply -f FILE",
		Short: "Apply a new specification to a running pool",
		Long: `Apply a new specification to a running pool and wait until all its workers run it. Workers restart at
most rotation.max_unavailable at a time; the rollout halts if one does not become ready again. A change of pool.size
alone restarts no worker. Any apply begins a halted rollout again, also of the same specification.

With --if-version, the spec is applied only to that version of the pool's spec, so that nobody else's change is undone.
tempool pool status shows the version.`,
		Example: `  tempool pool apply -f pool.toml --reason "new model"
  tempool pool apply -f pool.toml --if-version 3
  tempool pool apply -f pool.toml --no-wait`,
	}, func(ctx context.Context, cp controlPlane, s spec.Spec) error {
		name := s.Pool.Name
		request.Spec, request.By = s, operator()
		d, err := a.diff(ctx, cp, s)
		if err != nil {
			return err
		}
		applied, err := ask(ctx, a, cp.Pool(name).ApplySpec, request)
		if err != nil {
			return err
		}
		restarts := applied.Changed
		applied.Changed = restarts || len(d.Changes) > 0
		result := applyResult{applied, d.Changes}
		switch {
		case !restarts:
			return a.printResult(result, d.write)
		case wait.skip:
			return a.printMessage(result, "pool %s is rolling out spec version %d; run tempool pool status %[1]s to follow",
				name, result.SpecVersion)
		}
		if err := a.awaitRollout(ctx, cp, name, wait.limit); err != nil {
			return err
		}
		return a.printMessage(result, "pool %s runs spec version %d", name, result.SpecVersion)
	})
	checkFlags(c, func(cmd *cobra.Command) error {
		if cmd.Flags().Changed("if-version") && request.IfVersion < 1 {
			return usagef("--if-version is %d; versions start at 1", request.IfVersion)
		}
		return nil
	})
	c.Flags().Int64Var(&request.IfVersion, "if-version", 0, "apply the spec only if the pool's spec has this version")
	c.Flags().StringVar(&request.Reason, "reason", "", "reason to record in the workers' histories")
	wait.flags(c, defaultRolloutWait, "until the rollout is done")
	return c
}

func (a *app) poolHaltCommand() *cobra.Command {
	var reason string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "halt POOL",
		Short: "Halt the rolling restart of a pool",
		Long: `Halt the rolling restart of a pool, of a new specification or of tempool workers restart. Workers that restart
now go on; the others keep their process and specification until the next pool apply or workers restart.`,
		Example: `  tempool pool halt python --reason "odd answers"`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		halted, err := ask(ctx, a, cp.Pool(args[0]).HaltRollout, api.Control{Reason: reason, By: operator()})
		if err != nil {
			return err
		}
		return a.printMessage(halted, "pool %s: %s", args[0], rolloutSummary(&halted))
	})
	c.Flags().StringVar(&reason, "reason", "", "reason to show with the rollout")
	return c
}

// applyResult is the result of tempool pool apply.
type applyResult struct {
	api.ApplyResult
	Changes []spec.Change `json:"changes"`
}

// awaitRollout waits until the pool has no rollout. It fails if the rollout halts.
func (a *app) awaitRollout(ctx context.Context, cp controlPlane, name string, limit time.Duration) error {
	progress := "no answer"
	return a.await(ctx, limit, func(ctx context.Context) (bool, error) {
		status, err := cp.Pool(name).Status(ctx)
		switch {
		case err != nil:
			return false, err
		case status.Stopping:
			return false, api.Errorf(api.CodeDraining,
				"pool %s is stopping because a user stopped it, which cancels the rollout", name)
		case status.Rollout == nil:
			return true, nil
		case status.Rollout.Halted != "":
			return false, haltedRolloutError(ctx, cp.Pool(name), status)
		}
		progress = rolloutSummary(status.Rollout) + ready.States(name, slices.DeleteFunc(slices.Clone(status.Workers),
			func(w api.RosterEntry) bool {
				return w.State.InService() || !slices.Contains(status.Rollout.Current, w.Slot)
			}))
		a.showProgress(name + ": " + progress)
		return false, nil
	}, func() string {
		return fmt.Sprintf("the rollout of pool %s is not done after %s (%s); it continues: run tempool pool status %[1]s "+
			"to follow", name, formatDuration(limit), progress)
	})
}

// rolloutSummary describes the progress of a rolling restart in one line.
func rolloutSummary(r *api.Rollout) string {
	text := fmt.Sprintf("%s: %d done, restarting %v, waiting %v", r.Reason, r.Done, r.Current, r.Waiting)
	if len(r.NoCapacity) > 0 {
		text += fmt.Sprintf(", no capacity for %v", r.NoCapacity)
	}
	if r.Halted != "" {
		text += "; " + r.Halted
	}
	return text
}

// haltedRolloutError is the error for a halted rollout. It includes the log of the worker that did not get ready.
func haltedRolloutError(ctx context.Context, p pool, status api.PoolStatus) error {
	reason := strings.TrimRight(status.Rollout.Halted, "\n")
	if !status.Rollout.Failed() {
		return api.Errorf(codeHalted, "the rollout of pool %s (%s) has %s", p.Name(), status.Rollout.Reason, reason)
	}
	for _, w := range status.Workers {
		if !w.Resting {
			continue
		}
		if failure, found := ready.LastFailure(ctx, p, w.Slot); found && !strings.Contains(reason, failure.Reason) {
			reason += fmt.Sprintf("\n%s %s: %s", api.WorkerName(p.Name(), w.Slot), w.State, indentLines(failure.Reason))
		}
	}
	return api.Errorf(api.CodeStartFailed, "the rollout of pool %s (%s) halted after %s: %s\nFix the cause and run "+
		"tempool pool apply -f FILE; the remaining workers keep running the old spec",
		p.Name(), status.Rollout.Reason, plural(status.Rollout.Done, "worker"), reason)
}

// poolDiff is the result of tempool pool diff.
type poolDiff struct {
	Pool        string        `json:"pool"`
	SpecVersion int64         `json:"spec_version"`
	Changes     []spec.Change `json:"changes"`
	Restarts    []string      `json:"restarts"` // workers
}

func (d poolDiff) write(text *strings.Builder) {
	if len(d.Changes) == 0 && len(d.Restarts) == 0 {
		fmt.Fprintf(text, "pool %s runs this spec already, version %d; no worker restarts (tempool workers restart %[1]s "+
			"restarts all)\n", d.Pool, d.SpecVersion)
		return
	}
	if len(d.Changes) == 0 {
		fmt.Fprintf(text, "pool %s runs this spec already, version %d; its rollout has halted, and apply begins it again\n",
			d.Pool, d.SpecVersion)
	} else {
		tableOf(text, []string{"KEY", "FROM", "TO"}, d.Changes, func(c spec.Change) []string {
			return []string{c.Key, oneLine(orDash(c.From), maxReasonRunes), oneLine(orDash(c.To), maxReasonRunes)}
		})
	}
	if len(d.Restarts) == 0 {
		fmt.Fprintln(text, "No worker restarts.")
	} else {
		fmt.Fprintf(text, "%s of %s: %s.\n", plural(len(d.Restarts), "restart"), d.Pool,
			oneLine(strings.Join(d.Restarts, ", "), maxReasonRunes))
	}
}

func (a *app) poolDiffCommand() *cobra.Command {
	return a.specCommand(&cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what pool apply would change, and whom it would restart",
		Example: `  tempool pool diff -f pool.toml
  tempool pool diff -f pool.toml -o json | jq -r '.restarts[]'`,
	}, func(ctx context.Context, cp controlPlane, s spec.Spec) error {
		d, err := a.diff(ctx, cp, s)
		if err != nil {
			return err
		}
		return a.printResult(d, d.write)
	})
}

// diff compares a spec with that of the running pool of its name.
func (a *app) diff(ctx context.Context, cp controlPlane, s spec.Spec) (poolDiff, error) {
	name := s.Pool.Name
	running, err := send(ctx, a, cp.Pool(name).Status)
	if err != nil {
		return poolDiff{}, err
	}
	d := poolDiff{Pool: name, SpecVersion: running.SpecVersion, Restarts: []string{},
		Changes: append([]spec.Change{}, spec.ChangesWithoutSecrets(running.Spec, s)...)}
	restarts := slices.ContainsFunc(d.Changes, spec.Change.RestartsWorkers) ||
		running.Rollout != nil && running.Rollout.Halted != ""
	for _, w := range running.Workers {
		if restarts && !w.Gone && !w.Removing {
			d.Restarts = append(d.Restarts, api.WorkerName(name, w.Slot))
		}
	}
	return d, nil
}
