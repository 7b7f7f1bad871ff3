package cli

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/workflows"
)

// versionText is what tempool --version prints. The state formats are those of the runs that this build writes, by
// workflow type; others are 1.
func versionText() string {
	v := buildinfo.Read()
	commit := cmp.Or(v.Commit, "unknown")
	if v.Modified {
		commit += " (modified)"
	}
	formats := "1"
	for _, name := range slices.Sorted(maps.Keys(workflows.StateFormats)) {
		formats += fmt.Sprintf(", %s %d", name, workflows.StateFormats[name])
	}
	var text strings.Builder
	table(&text, []string{"tempool", v.Version}, [][]string{{"commit", commit}, {"date", cmp.Or(v.Date, "unknown")},
		{"go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
		{"temporal sdk", cmp.Or(v.Temporal, "unknown")}, {"state formats", formats}})
	return text.String()
}
