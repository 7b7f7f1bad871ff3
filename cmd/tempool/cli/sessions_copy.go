package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// copyWait is how long tempool sessions copy waits for two stores to be in sync.
const copyWait = 30 * time.Minute

func (a *app) sessionsCopyCommand() *cobra.Command {
	var request api.SessionCopyRequest
	var force, status bool
	var wait waitFlags
	steps := []struct {
		step api.CopyStep
		help string
		set  bool
	}{
		{step: api.CopyStepCutOver, help: "make the second store the primary and keep writing both"},
		{step: api.CopyStepBack, help: "make the first store the primary again"},
		{step: api.CopyStepFinish, help: "keep the second store and stop writing the first"},
		{step: api.CopyStepCancel, help: "keep the first store and stop writing the second"},
	}
	c := &cobra.Command{
		Use:   "copy POOL {--from STORE --to STORE | --STEP}",
		Short: "Copy a pool's sessions to another store while they are in use",
		Long: `Copy the sessions of a pool's store to another store while they are in use, without downtime or loss.
The agent runs the copy and resumes it after a restart. STORE is embedded or the URL of a Redis server. The command
uses the agent's Unix socket, so run it on the pool's host; the pool must have no other host.

  1. --from STORE --to STORE   write every change to both, copy the sessions, compare until equal
  2. --cut-over                make the second store the primary; --back undoes this without loss
  3. apply a spec whose sessions.store and sessions.url name the second store
  4. --finish                  stop writing the first store

--cancel ends a copy before the cut-over. If the second store is permanently lost, --back --force returns to the first
store without it.`,
		Example: `  tempool sessions copy python --from embedded --to redis://localhost:6379/0
  tempool sessions copy python --status
  tempool sessions copy python --cut-over
  tempool sessions copy python --finish`,
	}
	f := c.Flags()
	f.StringVar(&request.From, "from", "", "store that has the sessions: embedded, or redis://…")
	f.StringVar(&request.To, "to", "", "store to copy them to")
	f.BoolVar(&request.Replace, "replace", false, "delete sessions that are already in the second store")
	f.BoolVar(&status, "status", false, "show the state of the copy")
	exclusive := []string{"from", "status"}
	for i := range steps {
		f.BoolVar(&steps[i].set, string(steps[i].step), false, steps[i].help)
		exclusive = append(exclusive, string(steps[i].step))
	}
	f.BoolVar(&force, "force", false, "with --back: return even if the second store does not answer")
	checkFlags(c, func(cmd *cobra.Command) error {
		chosen := slices.DeleteFunc(slices.Clone(exclusive), func(flag string) bool { return !cmd.Flags().Changed(flag) })
		switch {
		case len(chosen) != 1:
			return usagef("%s takes --from and --to, or one of --%s", cmd.CommandPath(),
				strings.Join(exclusive[1:], ", --"))
		case (request.From == "") != (request.To == ""):
			return usagef("--from and --to go together: the store that has the sessions, and the store to copy them to")
		case force && chosen[0] != string(api.CopyStepBack):
			return usagef("--force works only with --back")
		case request.Replace && chosen[0] != "from":
			return usagef("--replace works only with --from and --to")
		}
		return nil
	})
	wait.flags(c, copyWait, "until both stores are in sync")
	return a.gatewayCommand(c, func(ctx context.Context, p *tempool.Pool, _ []string) error {
		for _, one := range steps {
			if one.set {
				return a.printCopy(ask(ctx, a, p.StepSessionCopy, api.SessionCopyStep{Step: one.step, Force: force}))
			}
		}
		if status {
			return a.printCopy(send(ctx, a, p.SessionCopy))
		}
		report, err := ask(ctx, a, p.CopySessions, request)
		if err != nil || wait.skip {
			return a.printCopy(report, err)
		}
		return a.printCopy(a.awaitCopy(ctx, p, wait.limit, report))
	})
}

// awaitCopy waits until both stores are in sync, and shows the progress.
func (a *app) awaitCopy(ctx context.Context, p *tempool.Pool, limit time.Duration,
	report *api.SessionCopy) (*api.SessionCopy, error) {
	err := a.await(ctx, limit, func(ctx context.Context) (bool, error) {
		current, err := p.SessionCopy(ctx)
		if err != nil {
			return false, err
		}
		report = current
		a.showProgress(copyProgress(report))
		if report.Phase == api.CopyNone {
			return false, api.Errorf(api.CodeInvalid, "another user ended the copy")
		}
		return report.InSync || report.Phase == api.CopyCutOver, nil
	}, func() string {
		return fmt.Sprintf("the stores are not in sync after %s (%s); the copy continues: run tempool sessions copy with "+
			"--status to follow", limit, copyProgress(report))
	})
	return report, err
}

// copyProgress describes the state of a copy in one line.
func copyProgress(c *api.SessionCopy) string {
	line := "both stores are in sync"
	switch {
	case c.Phase == api.CopyNone:
		return "no copy is running"
	case c.Comparing != nil:
		line = fmt.Sprintf("compared %d of %d sessions, fixed %d", c.Comparing.Compared, c.Comparing.Sessions,
			c.Comparing.Missing+c.Comparing.Different+c.Comparing.Extra)
	case !c.InSync:
		line = "the stores are not compared yet"
	}
	if c.Problem != "" {
		line += "; " + c.Problem
	}
	return line
}

// printCopy prints the state of a copy and the next step.
func (a *app) printCopy(c *api.SessionCopy, err error) error {
	if err != nil {
		return err
	}
	return a.printResult(c, func(text *strings.Builder) {
		if c.Phase == api.CopyNone {
			fmt.Fprintf(text, "no copy of sessions is running on host %s", c.Host)
			if c.Problem != "" {
				text.WriteString("; " + c.Problem)
			}
			text.WriteByte('\n')
			return
		}
		primary, secondary, next := c.From, c.To, "wait until both are in sync"
		switch {
		case c.Phase == api.CopyCutOver:
			primary, secondary, next = c.To, c.From, "apply a spec that names it, then --finish; or --back"
		case c.InSync:
			next = "--cut-over, or --cancel"
		}
		fmt.Fprintf(text, "the primary store is %s; every change is also written to %s\n", primary, secondary)
		fmt.Fprintf(text, "%s; %s pending\n", copyProgress(c), plural(c.Pending, "session"))
		if last := c.Compared; last != nil {
			fmt.Fprintf(text, "last comparison: %s; %d missing, %d different, %d extra\n", plural(last.Compared, "session"),
				last.Missing, last.Different, last.Extra)
		}
		if c.Lost > 0 {
			fmt.Fprintf(text, "the last change of %s was lost\n", plural(c.Lost, "session"))
		}
		fmt.Fprintf(text, "next: %s\n", next)
	})
}
