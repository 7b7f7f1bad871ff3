package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// moving is what the commands that move sessions have in common.
type moveFlags struct {
	wait        waitFlags
	hookTimeout time.Duration
}

func (a *app) movingFlags(c *cobra.Command, m *moveFlags) {
	c.Flags().DurationVar(&m.hookTimeout, "hook-timeout", api.DefaultHookTimeout, "how long a worker may take to release or load one session")
	m.wait.flags(c, defaultRolloutWait, "until the sessions have moved")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if m.hookTimeout <= 0 || m.hookTimeout > api.MaxHookTimeout {
			return usagef("--hook-timeout is %s; give a time above zero, at most %s", m.hookTimeout, api.MaxHookTimeout)
		}
		return check(cmd, args)
	}
}

func (a *app) sessionsMigrateCommand() *cobra.Command {
	var m moveFlags
	var to string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "migrate POOL SESSION --to POOL/N",
		Short: "Move a session to another worker",
		Long: `Move a session to another worker: the one that it is with puts what it keeps of it into the store (session.release), the session's calls
go to the other from then on, and that one warms up for them (session.load). If a step fails, all is put back as it was.`,
		Example: `  ctl sessions migrate python user:42 --to python/3
  ctl sessions migrate python user:42 --to python/3 --no-wait`,
		Args:              exactly(argPool, argSession),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		return a.move(ctx, m, func(ctx context.Context) (migration, error) {
			return cp.Pool(args[0]).Migrate(ctx, args[1], api.MigrateSessionRequest{To: to, HookTimeout: spec.Duration(m.hookTimeout)})
		})
	})
	c.Flags().StringVar(&to, "to", "", "the worker that gets it, POOL/N")
	required(c, "to")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil || !cmd.Flags().Changed("to") {
			return err
		}
		pool, _, err := workerName(to)
		if err == nil && pool != args[0] {
			err = usagef("--to is %s, which is no worker of pool %s", to, args[0])
		}
		return err
	}
	a.movingFlags(c, &m)
	return c
}

func (a *app) sessionsEvacuateCommand() *cobra.Command {
	var m moveFlags
	var keepOff time.Duration
	var reason string
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "evacuate POOL/N",
		Short: "Move all sessions of a worker to the others of its pool",
		Long: `Move all sessions of a worker to the others of its pool, evenly, each as ctl sessions migrate does; calls go on meanwhile. From then on
the worker serves calls, but becomes no session's worker, for --keep-off or until its process ends. Sessions that could not be moved
stay where they were, and the command fails.`,
		Example: `  ctl sessions evacuate python/2
  ctl sessions evacuate python/2 --keep-off 1h --reason "new disk" && ctl workers drain python --worker 2`,
		Args:              exactly(argWorker),
		ValidArgsFunction: a.completeWorkers,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		pool, slot, err := workerName(args[0])
		if err != nil {
			return err
		}
		return a.move(ctx, m, func(ctx context.Context) (migration, error) {
			span := spec.Duration(keepOff)
			return cp.Pool(pool).Evacuate(ctx, api.EvacuateRequest{
				Worker: slot, KeepOff: &span, HookTimeout: spec.Duration(m.hookTimeout), Reason: reason, By: operator(),
			})
		})
	})
	c.Flags().DurationVar(&keepOff, "keep-off", api.DefaultSessionExclusion, "how long the worker becomes no session's worker afterwards")
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the workflow")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if keepOff < 0 || keepOff > api.MaxSessionExclusion {
			return usagef("--keep-off is %s; give a time from 0 to %s", keepOff, api.MaxSessionExclusion)
		}
		return check(cmd, args)
	}
	a.movingFlags(c, &m)
	return c
}

func (a *app) sessionsRebalanceCommand() *cobra.Command {
	var m moveFlags
	var parts map[string]int
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "rebalance POOL",
		Short: "Distribute a pool's sessions over its workers",
		Long: `Distribute a pool's sessions over its workers, evenly or as --weight says; as few sessions as that takes move, each as ctl sessions migrate
does. With --weight only the workers that are named give and take sessions; one of weight 0 keeps none.`,
		Example: `  ctl sessions rebalance python
  ctl sessions rebalance python --weight 0=2,1=1,2=1`,
		Args:              exactly(argPool),
		ValidArgsFunction: a.completePools,
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		weights, err := parseWeights(parts)
		if err != nil {
			return err
		}
		return a.move(ctx, m, func(ctx context.Context) (migration, error) {
			return cp.Pool(args[0]).RebalanceSessions(ctx, api.RebalanceSessionsRequest{Weights: weights, HookTimeout: spec.Duration(m.hookTimeout)})
		})
	})
	c.Flags().StringToIntVar(&parts, "weight", nil, "the part of worker N, relative to the others'; N=WEIGHT,...")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if _, err := parseWeights(parts); err != nil {
			return err
		}
		return check(cmd, args)
	}
	a.movingFlags(c, &m)
	return c
}

// parseWeights reads the slots of --weight.
func parseWeights(parts map[string]int) (map[int]int, error) {
	weights := map[int]int{}
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		slot, err := strconv.Atoi(part)
		if err != nil || slot < 0 || parts[part] < 0 {
			return nil, usagef("--weight %s=%d is not a worker's number and its part, such as 0=2", part, parts[part])
		}
		weights[slot] = parts[part]
	}
	return weights, nil
}

// move begins something that moves sessions, and waits for it unless it is not to. It fails if not all sessions have moved.
func (a *app) move(ctx context.Context, m moveFlags, begin func(context.Context) (migration, error)) error {
	request, cancel := a.request(ctx)
	under, err := begin(request)
	cancel()
	if err != nil {
		return err
	}
	if m.wait.skip {
		return a.printResult(map[string]string{"workflow_id": under.WorkflowID()}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "under way as workflow %s\n", under.WorkflowID())
			return err
		})
	}
	moves, err := a.awaitMigration(ctx, under, m.wait.limit)
	if err != nil {
		return err
	}
	if err := a.printResult(moves, func(w io.Writer) error { return writeMoves(w, moves) }); err != nil || moves.Skipped == 0 {
		return err
	}
	return api.Errorf(moves.Skips[0].Code, "%s could not be moved; the first: %s", plural(moves.Skipped, "session"), moves.Skips[0].Reason)
}

// awaitMigration waits for a migration and shows how far it is.
func (a *app) awaitMigration(ctx context.Context, under migration, limit time.Duration) (api.SessionMoves, error) {
	type end struct {
		moves api.SessionMoves
		err   error
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	over := make(chan end, 1)
	go func() { // ends with bounded at the latest, and is waited for below
		moves, err := under.Wait(bounded)
		over <- end{moves, err}
	}()
	tick := time.NewTicker(a.pollInterval)
	defer tick.Stop()
	for {
		select {
		case e := <-over:
			if errors.Is(e.err, context.DeadlineExceeded) && ctx.Err() == nil {
				return e.moves, api.Errorf(codeTimeout, "not done after %s; it goes on as workflow %s", formatDuration(limit), under.WorkflowID())
			}
			return e.moves, e.err
		case <-tick.C:
			request, cancel := a.request(bounded)
			progress, err := under.Progress(request)
			cancel()
			if err == nil && progress.Total > 0 { // one that is not answered is asked again
				a.showProgress(fmt.Sprintf("%d of %s moved", progress.Moved, plural(progress.Total, "session")))
			}
		}
	}
}

func writeMoves(w io.Writer, moves api.SessionMoves) error {
	text := plural(moves.Moved, "session") + " moved"
	if moves.Skipped > 0 {
		text += fmt.Sprintf(", %d not", moves.Skipped)
	}
	if moves.Note != "" {
		text += ": " + moves.Note
	}
	if _, err := fmt.Fprintln(w, text); err != nil {
		return err
	}
	if len(moves.Flows) > 0 {
		var rows [][]string
		for _, f := range moves.Flows {
			from := f.From
			if from == "" {
				from = "-"
			}
			rows = append(rows, []string{from, f.To, strconv.Itoa(f.Count)})
		}
		if err := table(w, []string{"FROM", "TO", "SESSIONS"}, rows); err != nil {
			return err
		}
	}
	if len(moves.Skips) == 0 {
		return nil
	}
	var rows [][]string
	for _, s := range moves.Skips {
		why := s.Reason
		if s.NotUndone != "" {
			why += "; not undone: " + s.NotUndone
		}
		rows = append(rows, []string{s.Session, s.From, s.To, oneLine(why, maxReasonRunes)})
	}
	return table(w, []string{"NOT MOVED", "FROM", "TO", "WHY"}, rows)
}
