package arrows

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		"a command holds logic": {Package{Path: Module + "/cmd/ctl", Name: "main", Lines: MaxMainLines + 1},
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

// listed returns the packages of this module as go list reports them.
func listed(t *testing.T) []Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Name,Imports,Deps,GoFiles,Dir", Module+
		"/...")
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	require.NoError(t, err)
	var packages []Package
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var next struct {
			ImportPath, Name, Dir  string
			Imports, Deps, GoFiles []string
		}
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return packages
		} else {
			require.NoError(t, err)
		}
		lines := 0
		for _, file := range next.GoFiles {
			text, err := os.ReadFile(filepath.Join(next.Dir, file))
			require.NoError(t, err)
			lines += strings.Count(string(text), "\n")
		}
		packages = append(packages, Package{Path: next.ImportPath, Name: next.Name, Imports: next.Imports, Deps: next.Deps,
			Lines: lines})
	}
}
