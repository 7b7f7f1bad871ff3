// Package dependencies checks that docs/dependencies.md gives a reason for every imported module.
package dependencies

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

const module = "github.com/tempool/tempool"

// golist runs go list and returns its output as words.
func golist(t *testing.T, arguments ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, arguments...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(output))
}

func TestEveryImportedModuleIsDocumented(t *testing.T) {
	text := docs.Read(t, "docs/dependencies.md")
	modules := golist(t, "-m", "-f", "{{.Path}}", "all")
	imports := golist(t, "-e", "-f", `{{join .Imports "\n"}} {{join .TestImports "\n"}} {{join .XTestImports "\n"}}`,
		module+"/...")
	require.Contains(t, imports, "github.com/stretchr/testify/require")

	checked := map[string]bool{}
	for _, imported := range imports {
		owner := ""
		for _, candidate := range modules {
			if (imported == candidate || strings.HasPrefix(imported, candidate+"/")) && len(candidate) > len(owner) {
				owner = candidate
			}
		}
		if owner == "" || owner == module || checked[owner] {
			continue
		}
		checked[owner] = true
		require.Contains(t, text, "\n| "+owner+" | ", "docs/dependencies.md has no line for %s, imported as %s", owner,
			imported)
	}
}

// A package whose path follows that of the launcher in the alphabet, and which it needs, delays its initializer until
// most of the agent's program is initialized: each start of a process then takes twice as much processor time.
func TestTheLauncherIsInitializedEarly(t *testing.T) {
	needed := golist(t, "-deps", module+"/process/launcher")
	require.Contains(t, needed, module+"/process/sandbox")
	for _, late := range []string{"regexp", "net", "net/url", "log/slog", "os/exec", "os/signal", "path/filepath",
		module + "/api", module + "/spec"} {
		require.NotContains(t, needed, late)
	}
}
