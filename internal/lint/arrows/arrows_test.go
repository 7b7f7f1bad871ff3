package arrows

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

func TestCheckFindsUpwardImports(t *testing.T) {
	for name, c := range map[string]struct {
		found Package
		want  string
	}{
		"the core imports a shell": {Package{Path: Module + "/lifecycle", Imports: []string{Module + "/spec"}},
			"points up"},
		"a decision reads the system": {Package{Path: Module + "/policy", Imports: []string{"os/exec"}},
			"it is pure"},
		"process depends on Temporal": {Package{Path: Module + "/process",
			Deps: []string{"go.temporal.io/sdk/client"}}, "must not, even indirectly"},
		"a command holds logic": {Package{Path: Module + "/cmd/ctl", Name: "main", lines: MaxMainLines + 1},
			"61 lines"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := Check([]Package{c.found})
			require.Len(t, wrong, 1)
			require.Contains(t, wrong[0], c.want)
		})
	}
}

func TestTheModuleFollowsTheRules(t *testing.T) {
	packages := listed(t)
	require.Greater(t, len(packages), 5)
	require.Empty(t, Check(packages))
}

// TestEveryImportedModuleIsDocumented checks that docs/dependencies.md gives a reason for each.
func TestEveryImportedModuleIsDocumented(t *testing.T) {
	text := docs.Read(t, "docs/dependencies.md")
	modules := strings.Fields(golist(t, "-m", "-f", "{{.Path}}", "all"))
	var imports []string
	for _, p := range listed(t) {
		imports = slices.Concat(imports, p.Imports, p.TestImports, p.XTestImports)
	}
	require.Contains(t, imports, "github.com/stretchr/testify/require")

	checked := map[string]bool{}
	for _, imported := range imports {
		owner := ""
		for _, candidate := range modules {
			if (imported == candidate || strings.HasPrefix(imported, candidate+"/")) && len(candidate) > len(owner) {
				owner = candidate
			}
		}
		if owner == "" || owner == Module || checked[owner] {
			continue
		}
		checked[owner] = true
		require.Contains(t, text, "\n| "+owner+" | ", "docs/dependencies.md has no line for %s, imported as %s", owner,
			imported)
	}
}

// listed returns the packages of this module as go list reports them.
func listed(t *testing.T) []Package {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(golist(t, "-e",
		"-json=ImportPath,Name,Imports,TestImports,XTestImports,Deps,GoFiles,Dir", Module+"/...")))
	var packages []Package
	for decoder.More() {
		var next Package
		require.NoError(t, decoder.Decode(&next))
		for _, file := range next.GoFiles {
			text, err := os.ReadFile(filepath.Join(next.Dir, file))
			require.NoError(t, err)
			next.lines += strings.Count(string(text), "\n")
		}
		packages = append(packages, next)
	}
	return packages
}

// golist runs go list and returns its output.
func golist(t *testing.T, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, arguments...)...)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	require.NoError(t, err)
	return string(output)
}
