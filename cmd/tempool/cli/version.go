package cli

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/internal/buildinfo"
)

// versionInfo is the result of tempool version.
type versionInfo struct {
	buildinfo.Info
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.localCommand(&cobra.Command{
		Use:   "version",
		Short: "Show the version of tempool",
		Example: `  tempool version
  tempool version -o json`,
	}, func(context.Context, []string) error {
		b := versionInfo{buildinfo.Read(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		text := "tempool " + b.Version
		if b.Commit != "" {
			text += ", commit " + b.Commit
		}
		if b.Modified {
			text += " (modified)"
		}
		return a.printMessage(b, "%s, %s, %s", text, b.Go, b.Platform)
	})
}
