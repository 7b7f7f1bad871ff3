package cli

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is the result of ctl version.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // built from a modified work tree
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.localCommand(&cobra.Command{
		Use:   "version",
		Short: "Show the version of ctl",
		Example: `  ctl version
  ctl version -o json`,
	}, func(context.Context, []string) error {
		b := newVersionInfo(debug.ReadBuildInfo())
		text := "ctl " + b.Version
		if b.Commit != "" {
			text += ", commit " + b.Commit
		}
		if b.Modified {
			text += " (modified)"
		}
		return a.printMessage(b, "%s, %s, %s", text, b.Go, b.Platform)
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
