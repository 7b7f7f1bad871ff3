package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheTableOfPackagesIsComplete checks that docs/architecture.md says of each package what it is for.
func TestTheTableOfPackagesIsComplete(t *testing.T) {
	text := Read(t, "docs/architecture.md")
	table := map[string]bool{}
	for line := range strings.Lines(section(t, text, "## The house")) {
		if strings.HasPrefix(line, "| `") || strings.HasPrefix(line, "- ") {
			for _, found := range span.FindAllStringSubmatch(line, -1) {
				table[found[1]] = true
			}
		}
	}
	packages := map[string]bool{}
	for _, file := range Files(t, func(name string) bool {
		return path.Ext(name) == ".go" &&
			!strings.HasSuffix(name, "_test.go")
	}) {
		if !strings.Contains(Read(t, file), "\npackage main\n") {
			packages[path.Dir(file)] = true
		}
	}
	var wrong []string
	for name := range packages {
		first, _, _ := strings.Cut(name, "/")
		if slices.Contains([]string{".", "examples", "sdk", "test"}, first) || strings.HasPrefix(name, "internal/lint/") {
			continue // "tempool (root)", and what is beside the house
		}
		if base := path.Base(name); strings.HasSuffix(base, "test") && base != "workflowtest" {
			continue // helpers of one package's tests
		}
		if !table[name] && !table[path.Base(name)] {
			wrong = append(wrong, "the table does not say what package "+name+" is for")
		}
	}
	require.Empty(t, wrong, "docs/architecture.md")
}

// TestPathsExist checks the paths of the repository that the pages name in code. In the walks of docs/architecture.md,
// a file without a folder is in that of the one before.
func TestPathsExist(t *testing.T) {
	top := map[string]bool{}
	entries, err := os.ReadDir(Root(t))
	require.NoError(t, err)
	for _, entry := range entries {
		top[entry.Name()] = entry.IsDir() && entry.Name() != "bin" // which make bin fills
	}
	form := regexp.MustCompile(`^([a-z]+)/[A-Za-z0-9._/-]*[A-Za-z0-9]$`)
	// Folders of an agent's state, and paths of users' own projects.
	others := []string{"sessions/sessions.db", "sessions/copy.json", "hello/pool.toml", "hello/worker.py"}
	var wrong []string
	for _, p := range pages(t) {
		for _, code := range p.spans() {
			if found := form.FindStringSubmatch(code); found != nil && top[found[1]] && !slices.Contains(others, code) &&
				!exists(t, code) {
				wrong = append(wrong, p.path+" names "+code)
			}
		}
	}
	step := regexp.MustCompile(`(?m)^\| \d+ \| (.+?) \| .+ \|$`)
	for _, found := range step.FindAllStringSubmatch(Read(t, "docs/architecture.md"), -1) {
		folder := ""
		for _, name := range span.FindAllStringSubmatch(found[1], -1) {
			file := name[1]
			if !strings.Contains(file, "/") {
				file = path.Join(folder, file) // "process/spawn.go", "program.go"
			}
			if folder = path.Dir(file); !exists(t, file) {
				wrong = append(wrong, "a walk of docs/architecture.md names "+file)
			}
		}
	}
	require.Empty(t, wrong)
}

// TestNamedTestsExist checks the names of tests in the documentation, and the patterns of the Makefile, which would
// match nothing silently.
func TestNamedTestsExist(t *testing.T) {
	var defined []string
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)[A-Z]\w*)\(`)
	for _, file := range Files(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		for _, found := range function.FindAllStringSubmatch(Read(t, file), -1) {
			defined = append(defined, found[1])
		}
	}
	require.Greater(t, len(defined), 1000)
	matches := func(pattern string) bool {
		return slices.ContainsFunc(defined, regexp.MustCompile(pattern).MatchString)
	}
	var wrong []string
	for _, p := range pages(t) {
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(p.text, -1) {
			if !matches(name) { // a page may give a pattern for several
				wrong = append(wrong, p.path+" names "+name)
			}
		}
	}
	for line := range strings.Lines(Read(t, "Makefile")) {
		for _, pattern := range regexp.MustCompile(`-run '([^'$]+)'`).FindAllStringSubmatch(line, -1) {
			for alternative := range strings.SplitSeq(pattern[1], "|") {
				if !matches(alternative) {
					wrong = append(wrong, "Makefile runs "+alternative+", which matches no test")
				}
			}
		}
	}
	require.Empty(t, wrong)
}

// TestMakeTargetsExist checks the targets of the Makefile that the documentation names.
func TestMakeTargetsExist(t *testing.T) {
	makefile := Read(t, "Makefile")
	for _, p := range pages(t) {
		for _, found := range regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)").FindAllStringSubmatch(p.text, -1) {
			require.Regexp(t, `(?m)^`+found[1]+`:`, makefile, "%s names make %s", p.path, found[1])
		}
	}
}

func exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(Root(t), filepath.FromSlash(name)))
	return err == nil
}
