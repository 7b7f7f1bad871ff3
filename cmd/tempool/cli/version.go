package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/workflows"
)

// versionInfo is the result of tempool version.
type versionInfo struct {
	buildinfo.Info
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// StateFormats are the formats of the state of runs that this build writes, by workflow type; others are 1.
	StateFormats map[string]int `json:"state_formats"`
}

func readVersion() versionInfo {
	return versionInfo{buildinfo.Read(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, workflows.StateFormats}
}

func (v versionInfo) String() string {
	commit := cmp.Or(v.Commit, "unknown")
	if v.Modified {
		commit += " (modified)"
	}
	formats := "1"
	for _, name := range slices.Sorted(maps.Keys(v.StateFormats)) {
		formats += fmt.Sprintf(", %s %d", name, v.StateFormats[name])
	}
	var text strings.Builder
	table(&text, []string{"tempool", v.Version}, [][]string{{"commit", commit}, {"date", cmp.Or(v.Date, "unknown")},
		{"go", v.Go + " " + v.Platform}, {"temporal sdk", cmp.Or(v.Temporal, "unknown")}, {"state formats", formats}})
	return text.String()
}

func (a *app) versionCommand() *cobra.Command {
	return a.localCommand(&cobra.Command{
		Use:   "version",
		Short: "Show the version of tempool, as --version does",
		Example: `  tempool version
  tempool version -o json`,
	}, func(context.Context, []string) error {
		v := readVersion()
		return a.printResult(v, func(text *strings.Builder) { text.WriteString(v.String()) })
	})
}
