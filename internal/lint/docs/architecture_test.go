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

// TestTheWalksNameFilesThatExist checks the walks of docs/architecture.md: their steps are numbered, their files exist,
// and are few.
func TestTheWalksNameFilesThatExist(t *testing.T) {
	text := Read(t, "docs/architecture.md")
	row := regexp.MustCompile(`(?m)^\| (\d+) \| (.+?) \| .+ \|$`)
	for walk, most := range map[string]int{
		"## A checkout": 12, "## A crash, until the worker is ready again": 22, "## A call": 12,
		"## A cancel, a disconnect, a deadline": 10,
	} {
		steps := row.FindAllStringSubmatch(section(t, text, walk), -1)
		require.NotEmpty(t, steps, walk)
		named := 0
		for i, step := range steps {
			require.Equal(t, i+1, number(t, step[1]), walk)
			folder := ""
			for _, found := range span.FindAllStringSubmatch(step[2], -1) {
				file := found[1]
				if !strings.Contains(file, "/") {
					file = path.Join(folder, file) // "process/spawn.go", "program.go"
				}
				folder = path.Dir(file)
				require.True(t, exists(t, file), "%s names %s", walk, file)
				named++
			}
		}
		require.LessOrEqual(t, named, most, walk)
	}
}

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
	for _, file := range files(t, func(name string) bool {
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
	for name := range table {
		if strings.Contains(name, "/") && !strings.ContainsAny(name, ".…(") && !exists(t, name) {
			wrong = append(wrong, "the table names "+name+", which does not exist")
		}
	}
	require.Empty(t, wrong, "docs/architecture.md")
}

// TestPathsExist checks the paths of the repository that the pages name in code.
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
	require.Empty(t, wrong)
}

// TestNamedTestsExist checks the names of tests in the documentation, and the patterns of the Makefile, which would
// match nothing silently.
func TestNamedTestsExist(t *testing.T) {
	defined := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)[A-Z]\w*)\(`)
	for _, file := range files(t, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		for _, found := range function.FindAllStringSubmatch(Read(t, file), -1) {
			defined[found[1]] = true
		}
	}
	require.Greater(t, len(defined), 1000)
	matches := func(pattern string) bool {
		compiled := regexp.MustCompile(pattern)
		for name := range defined {
			if compiled.MatchString(name) {
				return true
			}
		}
		return false
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
