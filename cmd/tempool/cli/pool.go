package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/policy"
)

func (a *app) poolCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "pool",
		Short: "Start, stop, change and list pools",
		Example: `  tempool pool start -f pool.toml
  tempool pool status python
  tempool pool stop python`,
	},
		a.poolStartCommand(), a.poolStopCommand(), a.poolStatusCommand(), a.poolListCommand(), a.poolScaleCommand(),
		a.poolApplyCommand(), a.poolDiffCommand(), a.poolHaltCommand(),
	)
}

// poolView is the state of a pool and what is wrong with it.
type poolView struct {
	api.PoolWorkers
	// Report is nil for a pool that has stopped.
	Report *policy.Report `json:"report,omitempty"`
}

func (a *app) poolStatusCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "status POOL",
		Short: "Show a pool, its workers, its problems and what to do",
		Example: `  tempool pool status python
  tempool pool status python -o json | jq .ready
  tempool pool status python -o json | jq -r '.report.recommendations[]'`,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		workers, err := send(ctx, a, cp.Pool(args[0]).Workers)
		if err != nil {
			return err
		}
		view := poolView{PoolWorkers: workers}
		if !workers.Ended {
			view.Report = new(policy.NewReport(workers, time.Now()))
		}
		return a.printResult(view, func(text *strings.Builder) { a.writeStatus(text, view) })
	})
}

// writeStatus writes what tempool pool status shows: the pool, its workers, its problems and what to do, and the full
// reason of each worker out of service.
func (a *app) writeStatus(text *strings.Builder, view poolView) {
	if view.Report != nil {
		fmt.Fprintf(text, "%s\n\n", view.Report.Overview.Summary)
	}
	rows := [][]string{{"Spec version", fmt.Sprint(view.SpecVersion)}}
	if view.Rollout != nil {
		rows = append(rows, []string{"Rollout", oneLine(rolloutSummary(view.Rollout), 2*maxReasonRunes)})
	}
	if view.Scale != nil {
		rows = append(rows, []string{"Wanted",
			oneLine(fmt.Sprintf("%d of %d to %d: %s", view.Scale.Wanted, view.Scale.Min, view.Scale.Max, view.Scale.Reason),
				2*maxReasonRunes)})
	}
	if view.Report != nil {
		rows = append(rows, served(*view.Report)...)
	}
	rows = append(rows, lastMinute(view.PoolWorkers)...)
	table(text, []string{"Pool", view.Pool}, rows)
	a.writeWorkers(text, []api.PoolWorkers{view.PoolWorkers})
	if view.Report != nil {
		writeProblems(text, *view.Report)
	}
	for _, worker := range view.Workers {
		if reason := worker.ReasonOutOfService(); reason != "" {
			fmt.Fprintf(text, "\n%s %s: %s\n", worker.Worker, worker.State, indentLines(reason))
		}
	}
	writeScaling(text, view.Scale)
}

// served are the rows about what the pool's workers have done.
func served(r policy.Report) (rows [][]string) {
	if u := r.Resources; u != nil {
		rows = append(rows, []string{"Resources", fmt.Sprintf("%s, %s at peak; CPU %.1f %%", formatBytes(u.MemoryBytes),
			formatBytes(u.PeakMemoryBytes), u.CPUPercent)})
	}
	if p := r.Performance; p != nil {
		rows = append(rows,
			[]string{"Calls", fmt.Sprintf("%d, %d failed (%.1f %%), %s on average", p.Requests, p.Failed, 100*p.FailedShare,
				formatDuration(milliseconds(p.AvgCallMS)))},
			[]string{"Restarts", formatCauses(p.Restarts)}, []string{"Rotations", formatCauses(p.Rotations)})
	}
	return rows
}

// writeProblems writes what is wrong with a pool, and what to do about it; nothing for one without problems.
func writeProblems(text *strings.Builder, r policy.Report) {
	if len(r.Alerts) > 0 {
		fmt.Fprintln(text, "\nProblems")
	}
	for _, alert := range r.Alerts {
		fmt.Fprintf(text, "%s  %s: %s\n", alert.Severity, cmp.Or(alert.Worker, r.Pool), alert.Text)
	}
	if len(r.Alerts) > 0 || r.Recommendations[0] != policy.NothingToDo {
		fmt.Fprintln(text, "\nWhat to do")
		for _, advice := range r.Recommendations {
			fmt.Fprintf(text, "- %s\n", advice)
		}
		for _, link := range r.Runbooks() {
			fmt.Fprintf(text, "- See %s\n", link)
		}
	}
}

// formatCauses lists each cause with its count, or "none".
func formatCauses(counts map[string]int64) string {
	var each []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		each = append(each, fmt.Sprintf("%d %s", counts[cause], strings.ReplaceAll(cause, "_", " ")))
	}
	return cmp.Or(strings.Join(each, ", "), "none")
}

// poolSummary is one pool in tempool pool list.
type poolSummary struct {
	Pool        string       `json:"pool"`
	Size        int          `json:"size"`
	Ready       int          `json:"ready"`
	SpecVersion int64        `json:"spec_version"`
	Stopping    bool         `json:"stopping,omitempty"`
	Rollout     *api.Rollout `json:"rollout,omitempty"`
	// Error says why the pool did not answer; the numbers are 0 then.
	Error string `json:"error,omitempty"`
	err   error
}

func (a *app) poolListCommand() *cobra.Command {
	return a.controlPlaneCommand(withNames(&cobra.Command{
		Use:   "list",
		Short: "List the running pools",
		Example: `  tempool pool list
  tempool pool list -o json | jq -r '.[].pool'`,
	}), func(ctx context.Context, cp controlPlane, _ []string) error {
		pools, err := allPools(ctx, a, cp, concurrentPools, summarize)
		if err != nil {
			return err
		}
		if err := a.printResult(pools, func(text *strings.Builder) { a.writePools(text, pools) }); err != nil {
			return err
		}
		var failed []error
		for _, p := range pools {
			failed = append(failed, p.err)
		}
		return errors.Join(failed...)
	})
}

// summarize returns a summary even of a pool that does not answer.
func summarize(p pool, ctx context.Context) (poolSummary, error) {
	s, err := p.Status(ctx)
	if err != nil {
		return poolSummary{Pool: p.Name(), Error: message(err), err: err}, nil
	}
	summary := poolSummary{Pool: p.Name(), Size: s.Size, Ready: s.Ready, SpecVersion: s.SpecVersion,
		Stopping: s.Stopping, Rollout: s.Rollout}
	if s.Ready < s.Size { // a worker that crashes repeatedly reports to its pool only what lasts
		asked := []api.PoolWorkers{s.View()}
		tempool.AskOutOfService(ctx, asked,
			func(ctx context.Context, _ string, slot int) (api.WorkerState, error) { return p.State(ctx, slot) })
		summary.Ready = asked[0].Ready
	}
	return summary, nil
}

// writePools writes the table of tempool pool list.
func (a *app) writePools(text *strings.Builder, pools []poolSummary) {
	tableOf(text, []string{"POOL", "READY", "SPEC VERSION", "NOTE"}, pools, func(p poolSummary) []string {
		note := p.Error
		switch {
		case note != "":
		case p.Stopping:
			note = "stopping"
		case p.Rollout != nil:
			note = rolloutSummary(p.Rollout)
		}
		return []string{p.Pool, fmt.Sprintf("%d/%d", p.Ready, p.Size), fmt.Sprint(p.SpecVersion),
			oneLine(note, a.cellRunes())}
	})
}

// How many pools tempool asks concurrently: with their workers, and alone.
const (
	concurrentPools   = 4
	concurrentQueries = 16
)

// allPools calls get for every running pool, for atOnce at a time, and returns the results in the order of the pools'
// names, with the errors of all pools joined. It leaves out pools that failed or have stopped meanwhile.
func allPools[T any](ctx context.Context, a *app, cp controlPlane, atOnce int,
	get func(pool, context.Context) (T, error)) ([]T, error) {
	names, err := send(ctx, a, cp.ListPools)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	names = slices.Compact(names)
	results, failures := make([]T, len(names)), make([]error, len(names))
	sleep.Each(len(names), atOnce, func(i int) {
		results[i], failures[i] = send(ctx, a, func(ctx context.Context) (T, error) { return get(cp.Pool(names[i]), ctx) })
	})
	answered := []T{}
	for i, result := range results {
		switch {
		case failures[i] == nil:
			answered = append(answered, result)
		case errors.Is(failures[i], api.ErrPoolNotFound):
			failures[i] = nil
		}
	}
	return answered, errors.Join(failures...)
}

// poolOrAll is allPools for the pool in args, or for all if there is none.
func poolOrAll[T any](ctx context.Context, a *app, cp controlPlane, args []string,
	get func(pool, context.Context) (T, error)) ([]T, error) {
	if len(args) == 0 {
		return allPools(ctx, a, cp, concurrentPools, get)
	}
	one, err := send(ctx, a, func(ctx context.Context) (T, error) { return get(cp.Pool(args[0]), ctx) })
	if err != nil {
		return nil, err
	}
	return []T{one}, nil
}

// printPools prints what poolOrAll has found: one view, or a list of views of all running pools. If pools failed, it
// prints the others and returns the error.
func (a *app) printPools(args []string, views []api.PoolWorkers, failed error,
	write func(text *strings.Builder, views []api.PoolWorkers)) error {
	if len(views) == 0 && failed != nil {
		return failed
	}
	var result any = views
	if len(args) == 1 {
		result = views[0]
	}
	if err := a.printResult(result, func(text *strings.Builder) { write(text, views) }); err != nil {
		return err
	}
	return failed
}
