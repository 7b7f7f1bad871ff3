package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// setupResult is the result of ctl setup.
type setupResult struct {
	Namespace string `json:"namespace"`
	// Added names the search attributes that were missing.
	Added []string `json:"added"`
}

func (a *app) setupCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "setup",
		Short: "Prepare a Temporal namespace for Tempool",
		Long: `Register Tempool's search attributes in a Temporal namespace, so that workers can be searched for by pool, state, health and
host. It needs operator rights there, may be run again at any time, and is best run before the first pool is started.`,
		Example: `  ctl setup
  ctl setup --address temporal.example.com:7233 --namespace production`,
		Args: noArguments,
	}, func(ctx context.Context, cp controlPlane, _ []string) error {
		request, cancel := a.request(ctx)
		defer cancel()
		added, err := cp.Setup(request)
		if err != nil {
			return err
		}
		result := setupResult{Namespace: cp.Namespace(), Added: append([]string{}, added...)}
		return a.printResult(result, func(w io.Writer) error {
			text := "nothing was missing"
			if len(added) > 0 {
				text = "added the search attributes " + strings.Join(added, ", ")
			}
			_, err := fmt.Fprintf(w, "namespace %s is ready for Tempool: %s\n", result.Namespace, text)
			return err
		})
	})
}

// versionInfo is the result of ctl version.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // built from a work tree that differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.localCommand(&cobra.Command{
		Use:   "version",
		Short: "Show which build of ctl this is",
		Example: `  ctl version
  ctl version -o json`,
		Args: noArguments,
	}, func(context.Context, []string) error {
		b := newVersionInfo(debug.ReadBuildInfo())
		return a.printResult(b, func(w io.Writer) error {
			text := "ctl " + b.Version
			if b.Commit != "" {
				text += ", commit " + b.Commit
			}
			if b.Modified {
				text += " (modified)"
			}
			_, err := fmt.Fprintf(w, "%s, %s, %s\n", text, b.Go, b.Platform)
			return err
		})
	})
}

func newVersionInfo(info *debug.BuildInfo, known bool) versionInfo {
	b := versionInfo{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !known {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, "(devel)")
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}
