package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

// copyWait is how long ctl sessions copy waits for two stores to be in step.
const copyWait = 30 * time.Minute

func (a *app) sessionsCopyCommand() *cobra.Command {
	var to aim
	var request api.SessionCopyRequest
	var force, status bool
	var wait waitFlags
	steps := []struct {
		step api.CopyStep
		does string
		set  bool
	}{
		{step: api.CopyStepCutOver, does: "make the second store the truth; the first one is written still"},
		{step: api.CopyStepBack, does: "make the first store the truth again"},
		{step: api.CopyStepFinish, does: "stay with the second store, and write the first one no more"},
		{step: api.CopyStepCancel, does: "stay with the first store, and write the second one no more"},
	}
	c := &cobra.Command{
		Use:   "copy POOL {--from STORE --to STORE | --status | --cut-over | --back | --finish | --cancel}",
		Short: "Move a pool's sessions to another store while they are in use",
		Long: `Move the sessions of a pool's store to another store while they are in use. Nobody waits and nothing is lost; the agent does it, and
goes on with it after its own end. STORE is embedded or the URL of a Redis server. The command needs the agent's Unix socket, so run it on the
pool's host, which must be its only one.

  1. --from STORE --to STORE   every change goes to both stores; what there is is copied; both are compared until they are equal
  2. --cut-over                the second store is the truth, the first one follows; --back undoes it, and loses nothing either
  3. apply a spec whose sessions.store and sessions.url name the second store
  4. --finish                  the first store is written no more

--cancel ends a copy that is not cut over. If the second store is gone for good, --back --force goes back without it.`,
		Example: `  ctl sessions copy python --from embedded --to redis://localhost:6379/0
  ctl sessions copy python --status
  ctl sessions copy python --cut-over
  ctl sessions copy python --finish`,
	}
	to.gatewayFlags(c)
	f := c.Flags()
	f.StringVar(&request.From, "from", "", "the store that the sessions are in: embedded, or redis://…")
	f.StringVar(&request.To, "to", "", "the store that they are to be in")
	f.BoolVar(&request.Replace, "replace", false, "delete the sessions that the second store has already")
	f.BoolVar(&status, "status", false, "say how the copy stands")
	exclusive := []string{"from", "status"}
	for i := range steps {
		f.BoolVar(&steps[i].set, string(steps[i].step), false, steps[i].does)
		exclusive = append(exclusive, string(steps[i].step))
	}
	f.BoolVar(&force, "force", false, "with --back: although the second store does not answer")
	c.Args = func(cmd *cobra.Command, args []string) error {
		chosen := slices.DeleteFunc(slices.Clone(exclusive), func(flag string) bool { return !cmd.Flags().Changed(flag) })
		switch {
		case len(chosen) != 1:
			return usagef("%s takes --from and --to, or one of --%s", cmd.CommandPath(), strings.Join(exclusive[1:], ", --"))
		case (request.From == "") != (request.To == ""):
			return usagef("--from and --to go together: the store that the sessions are in, and the one they are to be in")
		case force && chosen[0] != string(api.CopyStepBack):
			return usagef("--force goes with --back only")
		case request.Replace && chosen[0] != "from":
			return usagef("--replace goes with --from and --to only")
		}
		return exactly(argPool)(cmd, args)
	}
	wait.flags(c, copyWait, "until both stores are in step")
	return a.gatewayCommand(c, &to, func(ctx context.Context, p pool, _ []string) error {
		for _, one := range steps {
			if one.set {
				return a.printCopy(a.copyRequest(ctx, func(ctx context.Context) (*api.SessionCopy, error) {
					return p.StepSessionCopy(ctx, api.SessionCopyStep{Step: one.step, Force: force})
				}))
			}
		}
		if status {
			return a.printCopy(a.copyRequest(ctx, p.SessionCopy))
		}
		report, err := a.copyRequest(ctx, func(ctx context.Context) (*api.SessionCopy, error) { return p.CopySessions(ctx, request) })
		if err != nil || wait.skip {
			return a.printCopy(report, err)
		}
		return a.printCopy(a.awaitCopy(ctx, p, wait.limit, report))
	})
}

func (a *app) copyRequest(ctx context.Context, ask func(context.Context) (*api.SessionCopy, error)) (*api.SessionCopy, error) {
	ctx, cancel := a.request(ctx)
	defer cancel()
	return ask(ctx)
}

// awaitCopy waits until both stores are in step, and shows how far they are.
func (a *app) awaitCopy(ctx context.Context, p pool, limit time.Duration, report *api.SessionCopy) (*api.SessionCopy, error) {
	err := a.await(ctx, limit, func(ctx context.Context) (bool, error) {
		now, err := p.SessionCopy(ctx)
		if err != nil {
			return false, err
		}
		report = now
		a.showProgress(copyProgress(report))
		if report.Phase == api.CopyNone {
			return false, api.Errorf(api.CodeInvalid, "the copy was ended by somebody else")
		}
		return report.InStep || report.Phase == api.CopyCutOver, nil
	})
	var late *waitTimeout
	if errors.As(err, &late) {
		return nil, api.Errorf(codeTimeout, "the two stores are not in step after %s; the copy goes on, and --status says how: %s", limit, copyProgress(report))
	}
	return report, err
}

// copyProgress is a line about a copy under way.
func copyProgress(c *api.SessionCopy) string {
	line := "both stores are in step"
	switch {
	case c.Phase == api.CopyNone:
		return "no copy goes on"
	case c.Comparing != nil:
		line = fmt.Sprintf("compared %d of %d sessions, put %d right", c.Comparing.Compared, c.Comparing.Sessions, c.Comparing.Missing+c.Comparing.Different+c.Comparing.Extra)
	case !c.InStep:
		line = "the stores have yet to be compared"
	}
	if c.Problem != "" {
		line += "; " + c.Problem
	}
	return line
}

// printCopy shows how a copy stands, and what comes next.
func (a *app) printCopy(c *api.SessionCopy, err error) error {
	if err != nil {
		return err
	}
	return a.printResult(c, func(w io.Writer) error {
		if c.Phase == api.CopyNone {
			_, err := fmt.Fprintf(w, "no copy of sessions goes on on host %s\n", c.Host)
			return err
		}
		truth, other, next := c.From, c.To, "wait until both are in step"
		switch {
		case c.Phase == api.CopyCutOver:
			truth, other, next = c.To, c.From, "apply a spec that names it, then --finish; or --back"
		case c.InStep:
			next = "--cut-over, or --cancel"
		}
		lines := []string{
			fmt.Sprintf("sessions are in %s, and every change goes to %s, too", truth, other),
			copyProgress(c) + fmt.Sprintf("; %s on the way", plural(c.Pending, "session")),
		}
		if last := c.Compared; last != nil {
			lines = append(lines, fmt.Sprintf("last comparison: %s; %d were missing, %d different, %d too many", plural(last.Compared, "session"), last.Missing, last.Different, last.Extra))
		}
		if c.Lost > 0 {
			lines = append(lines, fmt.Sprintf("the last change of %s was given up", plural(c.Lost, "session")))
		}
		_, err := fmt.Fprintf(w, "%s\nnext: %s\n", strings.Join(lines, "\n"), next)
		return err
	})
}
