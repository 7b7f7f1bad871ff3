package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

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
	var s spec.Spec
	c := a.controlPlaneCommand(&cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what pool apply would change, and whom it would restart",
		Example: `  tempool pool diff -f pool.toml
  tempool pool diff -f pool.toml -o json | jq -r '.restarts[]'`,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		d, err := a.diff(ctx, cp, s)
		if err != nil {
			return err
		}
		return a.printResult(d, d.write)
	})
	a.specFileFlag(c, &s)
	return c
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
