// Package dependencies checks that every module the code imports has a line of reason in docs/dependencies.md.
package dependencies

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/arrows"
)

const page = "../../../docs/dependencies.md"

// golist runs go list and returns the words it prints.
func golist(t *testing.T, arguments ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, arguments...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(output))
}

func TestEveryImportedModuleHasALineOfReason(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	modules := golist(t, "-m", "-f", "{{.Path}}", "all")
	imports := golist(t, "-e", "-f", `{{join .Imports "\n"}} {{join .TestImports "\n"}} {{join .XTestImports "\n"}}`, arrows.Module+"/...")
	require.Contains(t, imports, "github.com/stretchr/testify/require")

	reasoned := map[string]bool{}
	for _, imported := range imports {
		owner := ""
		for _, candidate := range modules {
			if (imported == candidate || strings.HasPrefix(imported, candidate+"/")) && len(candidate) > len(owner) {
				owner = candidate
			}
		}
		if owner == "" || owner == arrows.Module || reasoned[owner] {
			continue
		}
		reasoned[owner] = true
		require.Contains(t, string(text), "\n| "+owner+" | ", "docs/dependencies.md gives no reason for %s, imported as %s", owner, imported)
	}
}
