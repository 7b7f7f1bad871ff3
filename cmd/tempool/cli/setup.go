package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// setupResult is the result of tempool setup.
type setupResult struct {
	Namespace string `json:"namespace"`
	// Added names the search attributes that were missing.
	Added []string `json:"added"`
}

func (a *app) setupCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "setup",
		Short: "Prepare a Temporal namespace for Tempool",
		Long: `Register Tempool's search attributes in a Temporal namespace, so that Temporal can search workers by
pool, state, health and host. Run it once before you start the first pool; running it again does no harm. It needs the
permission to add search attributes.`,
		Example: `  tempool setup
  tempool setup --address temporal.example.com:7233 --namespace production`,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		added, err := send(ctx, a, cp.Setup)
		if err != nil {
			return err
		}
		result := setupResult{Namespace: cp.Namespace(), Added: append([]string{}, added...)}
		text := "nothing to add"
		if len(added) > 0 {
			text = "added the search attributes " + strings.Join(added, ", ")
		}
		return a.printMessage(result, "namespace %s is ready for Tempool: %s", result.Namespace, text)
	})
}
