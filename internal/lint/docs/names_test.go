package docs

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// keys returns the keys of a spec by section.
func keys() map[string][]string {
	all := map[string][]string{}
	for section := range reflect.TypeFor[spec.Spec]().Fields() {
		for key := range section.Type.Fields() {
			name := section.Tag.Get("json")
			all[name] = append(all[name], name+"."+key.Tag.Get("json"))
		}
	}
	return all
}

// TestNamesOfKeysEventsAndHooksExist checks names such as rotation.surge, lease.granted and session.release on every
// page.
func TestNamesOfKeysEventsAndHooksExist(t *testing.T) {
	known := api.EventTypes()
	for _, section := range keys() {
		known = append(known, section...)
	}
	known = append(known, api.HookSessionRelease, api.HookSessionLoad, api.HookLeaseReset, api.HookSuspend, api.HookResume)
	// host calls
	known = append(known, "start.warmup.method", "session.get", "session.update", "session.touch", "session.delete",
		"worker.count", "worker.unhealthy")
	known = append(known, "pool.toml", "lease.id", "lease.notify", "lease.go", "call.go", "host.name", "pool.sessions",
		"worker.js", "worker.py", "call.py", "process.kind", "process.exit")
	prefixes := map[string]bool{}
	for _, name := range known {
		prefix, _, _ := strings.Cut(name, ".")
		prefixes[prefix] = true
	}
	form := regexp.MustCompile(`^([a-z]+)\.([a-z_]+)(?: (?:=|>|<) .+)?$`)
	section := regexp.MustCompile(`^\[([a-z]+)\]$`)
	var wrong []string
	for _, p := range pages(t) {
		for _, code := range p.spans() {
			found, of := form.FindStringSubmatch(code), section.FindStringSubmatch(code)
			if found != nil && prefixes[found[1]] && !slices.Contains(known, found[1]+"."+found[2]) || of != nil &&
				keys()[of[1]] == nil {
				wrong = append(wrong, p.path+" names "+code)
			}
		}
	}
	require.Empty(t, wrong)
}

// TestFlagsExist checks that a program of Tempool has each flag that the documentation names.
func TestFlagsExist(t *testing.T) {
	// Flags of other programs.
	others := strings.Fields(`--expose-gc --enable-feature --prefix --data-binary
		--env-file --network --read-only --cap-drop --init --ulimit --user --volume --workdir --rm --preserve-fds
		--type --task-queue --input --name --workflow-id --schedule-id --cron --time-zone
		--deployment-name --unversioned --http-socket --help --now`)
	programs := sources(t, "cmd/", "api/", "test/bench/") // api has the steps of a copy
	var wrong []string
	for _, p := range pages(t) {
		for _, flag := range regexp.MustCompile(`(?:^|[\s`+"`"+`(/])--[a-z][a-z-]+`).FindAllString(p.text, -1) {
			flag = flag[strings.Index(flag, "--"):]
			if !slices.Contains(others, flag) && !strings.Contains(programs, strconv.Quote(flag[2:])) {
				wrong = append(wrong, p.path+" names "+flag)
			}
		}
	}
	require.Empty(t, wrong)
}

// TestEnvironmentVariablesExist compares the environment variables that the documentation names with those that the
// programs and SDKs use.
func TestEnvironmentVariablesExist(t *testing.T) {
	variable := regexp.MustCompile(`\bTEMPOOL_[A-Z]+(?:_[A-Z]+)*\b`)
	named := map[string]string{}
	for _, p := range pages(t) {
		for _, name := range variable.FindAllString(p.text, -1) {
			named[name] = p.path
		}
	}
	used := map[string]string{}
	agentFlags := Read(t, "cmd/tempool/cli/agent.go")
	for _, file := range Files(t, func(name string) bool {
		tested := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") || strings.Contains(name, "/test")
		return !tested && slices.Contains([]string{".go", ".py", ".js"}, filepath.Ext(name))
	}) {
		for _, name := range variable.FindAllString(Read(t, file), -1) {
			used[name] = file
		}
	}
	var wrong []string
	for name, file := range used {
		if named[name] == "" {
			wrong = append(wrong, file+" uses "+name+", which no page describes")
		}
	}
	for name, page := range named {
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "TEMPOOL_"), "_", "-"))
		stands := strings.Contains(agentFlags, strconv.Quote(flag)+",") // a flag can be set in the environment
		if !stands && used[name] == "" {
			wrong = append(wrong, page+" names "+name+", which nothing reads")
		}
	}
	require.Empty(t, wrong)
}

// TestWordsOfTheAPIAreExplained compares constants of the code with the pages that explain their values.
func TestWordsOfTheAPIAreExplained(t *testing.T) {
	for _, c := range []struct {
		folder, kind string
		page         string
		row          string // around each word
	}{
		{"lifecycle", "NoteKind", "docs/lifecycle.md", "\n| `%` | "},
		{"api", "Cause", "docs/operations/troubleshoot.md", "`%`"},
		{"api", "Cause", "docs/operations/monitor.md", "`%`"},
		{"api", "HostState", "docs/operations/deploy.md", "\n| `%` | "},
		{"api", "ReasonCode", "docs/operations/monitor.md", "`%`"},
		{"policy", "ScaleCause", "docs/operations/monitor.md", "`%`"},
		{"activities", "Decision", "docs/operations/monitor.md", "`%`"},
	} {
		text := Read(t, c.page)
		words := constants(t, c.folder, c.kind)
		require.NotEmpty(t, words, c.kind)
		for _, word := range words {
			require.True(t, strings.Contains(text, strings.ReplaceAll(c.row, "%", word)), "%s does not explain %s %q", c.page,
				c.kind, word)
		}
	}
	notes := section(t, Read(t, "docs/lifecycle.md"), "## The record")
	require.Len(t, regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| ").FindAllString(notes, -1),
		len(constants(t, "lifecycle", "NoteKind")), "docs/lifecycle.md has notes that do not exist")
}

// constants returns the values of the string constants of a type, sorted.
func constants(t *testing.T, folder, kind string) []string {
	t.Helper()
	values := map[string]bool{}
	for _, file := range goFiles(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.ValueSpec); ok {
				if name, ok := s.Type.(*ast.Ident); ok && name.Name == kind {
					for _, value := range s.Values {
						if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
							word, err := strconv.Unquote(literal.Value)
							require.NoError(t, err)
							values[word] = true
						}
					}
				}
			}
			return true
		})
	}
	delete(values, "")
	return slices.Sorted(maps.Keys(values))
}
