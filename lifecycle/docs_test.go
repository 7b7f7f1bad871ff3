package lifecycle_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
	"github.com/tempool/tempool/lifecycle"
)

var update = flag.Bool("update", false, "rewrite the generated parts of docs/lifecycle.md")

const manual = "docs/lifecycle.md"

func TestTheDocsShowTheTableAsItIs(t *testing.T) {
	text := docs.Read(t, manual)
	want := text
	for name, part := range map[string]string{"diagram": diagram(), "steps": stepTable()} {
		open := "<!-- generated:" + name + " -->\n"
		before, rest, found := strings.Cut(want, open)
		require.True(t, found, "docs/lifecycle.md has no place for the generated %s", name)
		_, after, found := strings.Cut(rest, "<!-- end -->\n")
		require.True(t, found, "the generated %s in docs/lifecycle.md has no end", name)
		want = before + open + part + "<!-- end -->\n" + after
	}
	if *update {
		replace(t, filepath.Join(docs.Root(t), manual), want)
		return
	}
	require.Equal(t, want, text, "docs/lifecycle.md is stale: run go test ./lifecycle -update")
}

func TestTheDocsDescribeEveryState(t *testing.T) {
	text := docs.Read(t, manual)
	for _, s := range lifecycle.States() {
		require.Contains(t, text, fmt.Sprintf("| `%s` | ", s))
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	temp := filepath.Join(filepath.Dir(path), ".lifecycle.md.new")
	require.NoError(t, os.WriteFile(temp, []byte(text), 0o644))
	require.NoError(t, os.Rename(temp, path))
}

// diagram draws the steps, one arrow for all events between the same two states. The outcomes share one box, since
// every live state leads to each of them and each leads to the same two.
func diagram() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> created\n")
	b.WriteString("    state outcome {\n")
	var ends []lifecycle.State
	for _, s := range lifecycle.States() {
		if s.Outcome() {
			ends = append(ends, s)
			fmt.Fprintf(&b, "        %s\n", s)
		}
	}
	b.WriteString("    }\n")
	for _, s := range lifecycle.States() {
		if s.Outcome() {
			continue
		}
		var targets []string
		labels := map[string][]string{}
		for _, k := range lifecycle.AllowedIn(s) {
			to, _ := lifecycle.Allowed(s, k)
			target := string(to)
			if to == "" {
				target = "outcome"
			}
			if labels[target] == nil {
				targets = append(targets, target)
			}
			labels[target] = append(labels[target], string(k))
		}
		for _, target := range targets {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", s, target, strings.Join(labels[target], ", "))
		}
	}
	for _, k := range lifecycle.AllowedIn(ends[0]) {
		to, _ := lifecycle.Allowed(ends[0], k)
		fmt.Fprintf(&b, "    outcome --> %s: %s\n", to, k)
	}
	b.WriteString("```\n")
	return b.String()
}

func TestAllOutcomesLeadToTheSameStates(t *testing.T) {
	for _, s := range lifecycle.States() {
		if !s.Outcome() {
			continue
		}
		require.Equal(t, lifecycle.AllowedIn(lifecycle.Stopped), lifecycle.AllowedIn(s), "the diagram draws them as one box")
		for _, k := range lifecycle.AllowedIn(s) {
			to, _ := lifecycle.Allowed(s, k)
			same, _ := lifecycle.Allowed(lifecycle.Stopped, k)
			require.Equal(t, same, to)
		}
	}
}

func stepTable() string {
	var b strings.Builder
	b.WriteString("| from | event → to |\n| --- | --- |\n")
	for _, s := range lifecycle.States() {
		var cells []string
		for _, k := range lifecycle.AllowedIn(s) {
			to, _ := lifecycle.Allowed(s, k)
			if to == "" {
				to = "outcome"
			}
			cells = append(cells, fmt.Sprintf("%s → %s", k, to))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", s, strings.Join(cells, " · "))
	}
	return b.String()
}
