// Package arrows checks that the packages of this module import each other in one direction only, from the shells down
// to the pure core, and that docs/dependencies.md gives a reason for every module that they import.
package arrows

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the import path of the root package.
const Module = "github.com/tempool/tempool"

// MaxMainLines bounds the code of a main package: cmd holds no logic.
const MaxMainLines = 60

// Package is one package, as go list describes it.
type Package struct {
	Path                      string `json:"ImportPath"`
	Name, Dir                 string // the name is "main" for a command
	GoFiles, Imports          []string
	Deps                      []string // direct and indirect
	TestImports, XTestImports []string
	lines                     int // in GoFiles
}

// rule binds the packages at path, which is relative to the module and "" for its root; a trailing "/..." includes the
// packages below. The first rule that matches a package applies. Every package may import api.
type rule struct {
	path  string
	ours  []string // packages of the module that it may import, in the notation of path
	never []string // modules outside that it must not even depend on
}

const temporal = "go.temporal.io"

// clients are the modules that the packages below the client never depend on.
var clients = []string{temporal, "google.golang.org/grpc"}

// outside makes a package impure: the system, the network, randomness and Temporal.
var outside = []string{temporal, "net", "os", "math/rand", "crypto/rand"}

// late are packages that the launcher does without. One that it needs, and whose path follows its own in the alphabet,
// delays its initializer until most of the agent's program is initialized: each start of a process then takes twice as
// much processor time.
var late = append([]string{"regexp", "net", "log/slog", "os/exec", "os/signal", "path/filepath", Module + "/api",
	Module + "/spec"}, clients...)

// rules define the allowed imports. A package without a rule may import everything, but only packages that name it may
// import it.
var rules = []rule{
	{path: "lifecycle/...", never: clients},
	{path: "policy", ours: []string{"internal/format", "lifecycle", "spec"}, never: clients},
	{path: "spec/...", ours: []string{"internal/redact"}, never: clients},
	{path: "api", ours: []string{"lifecycle", "spec"}, never: clients},
	{path: "events", ours: []string{"internal/loopback", "internal/redact", "internal/sleep"}, never: clients},
	{path: "internal/loopback", never: clients},
	{path: "internal/ordered", never: clients},
	{path: "internal/redact", never: clients},
	{path: "internal/sleep", never: clients},
	{path: "internal/tracecontext", never: clients},
	{path: "internal/updatelimit", never: clients},
	{path: "internal/transport", ours: []string{"internal/loopback", "internal/redact", "internal/tracecontext"},
		never: clients},
	{path: "internal/balance", ours: []string{"internal/transport"}, never: clients},
	{path: "codec", ours: []string{"internal/loopback"}},
	{path: "", ours: []string{"codec", "lifecycle", "policy", "spec", "internal/balance", "internal/loopback",
		"internal/redact", "internal/sleep", "internal/transport", "internal/updatelimit"}},
	{path: "workflows/...", ours: []string{"internal/format", "lifecycle/...", "policy", "spec/...", "workflows/..."}},
	{path: "sdk/go/...", ours: []string{"internal/tracecontext", "process/wire", "sdk/go"}, never: clients},
	{path: "process/wire/...", ours: []string{"process/wire/..."}, never: clients},
	{path: "process/launcher", ours: []string{"process/sandbox"}, never: late},
	{path: "process/...", ours: []string{"internal/atomicfile", "internal/redact", "internal/sleep", "lifecycle",
		"process/...", "spec"}, never: clients},
	{path: "sessions/redis/redistest", ours: []string{"internal/need"}, never: clients},
	{path: "sessions/host", ours: []string{"internal/atomicfile", "internal/redact", "internal/sleep", "lifecycle",
		"process", "process/wire", "sessions/...", "spec"}, never: clients},
	{path: "sessions/...", ours: []string{"internal/atomicfile", "internal/ordered", "internal/redact", "internal/sleep",
		"sessions/...", "spec"},
		never: clients},
	{path: "activities/...", ours: []string{"lifecycle", "policy", "process/...", "spec", "activities/...",
		"internal/sleep", "internal/tracecontext", "sessions/affinity"}},
	{path: "gateway/peer", ours: []string{"gateway/access", "gateway/pool", "internal/balance", "internal/loopback",
		"internal/sleep", "internal/tracecontext", "internal/transport"}},
	{path: "gateway/mcp", ours: []string{"gateway/lease", "gateway/pool", "internal/sleep", "process/wire", "sessions",
		"spec", "events"}},
	{path: "gateway/...", ours: []string{"", "lifecycle", "policy", "process/...", "sessions/...", "spec", "events",
		"gateway/...", "internal/format", "internal/loopback", "internal/ordered", "internal/redact", "internal/sleep",
		"internal/tracecontext", "internal/transport"}},
	{path: "worker/...", ours: []string{"", "lifecycle", "policy", "spec", "workflows", "activities/...", "process/...",
		"sdk/go", "gateway/...", "sessions/...", "events", "worker/...", "internal/atomicfile", "internal/buildinfo",
		"internal/redact", "internal/sleep", "internal/tracecontext"}},
	// A program that hosts an agent is also its reaper, and must become it before anything else happens.
	{path: "cmd/tempool", ours: []string{"cmd/tempool/cli", "process"}},
	{path: "cmd/ctl", ours: []string{"cmd/tempool/cli", "process"}},
	{path: "cmd/worker", ours: []string{"cmd/tempool/cli", "process"}},
	{path: "cmd/starter", ours: []string{"cmd/tempool/cli", "process"}},
	// Packages that programs and tests share are below the client.
	{path: "internal/installcache", ours: []string{"internal/sleep"}},
	{path: "internal/devserver", ours: []string{"internal/atomicfile", "internal/installcache", "internal/sleep"}},
	{path: "internal/devserver/provide", ours: []string{"internal/devserver"}},
	{path: "internal/examplesetup", ours: []string{"internal/installcache", "internal/need", "internal/sleep",
		"process/...", "spec"}},
	{path: "internal/logging/...", ours: []string{"internal/logging", "internal/redact"}},
	{path: "internal/..."},
}

// pure packages import nothing in outside; indirect dependencies do not count.
var pure = []string{"lifecycle/...", "policy"}

// Check returns one sentence for each violation, sorted.
func Check(packages []Package) []string {
	var wrong []string
	for _, p := range packages {
		name := relative(p.Path)
		if p.Name == "main" && fits(name, "cmd/...") && p.lines > MaxMainLines {
			wrong = append(
				wrong, fmt.Sprintf("%s has %d lines, a main package at most %d; move its logic to a package beside it", p.Path,
					p.lines, MaxMainLines))
		}
		if fitsAny(name, pure) {
			for _, imported := range p.Imports {
				if below(imported, outside) {
					wrong = append(wrong, fmt.Sprintf("%s imports %s; it is pure, so pass such facts as values", p.Path, imported))
				}
			}
		}
		at := slices.IndexFunc(rules, func(r rule) bool { return fits(name, r.path) })
		if at < 0 {
			continue
		}
		for _, imported := range p.Imports {
			if ours(imported) && relative(imported) != "api" && !fitsAny(relative(imported), rules[at].ours) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s; that arrow points up", p.Path, imported))
			}
		}
		for _, dependency := range p.Deps {
			if below(dependency, rules[at].never) {
				wrong = append(wrong, fmt.Sprintf("%s depends on %s; it must not, even indirectly", p.Path, dependency))
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func ours(path string) bool { return path == Module || strings.HasPrefix(path, Module+"/") }

func relative(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, Module), "/")
}

func fits(name, pattern string) bool {
	if folder, all := strings.CutSuffix(pattern, "/..."); all {
		return below(name, []string{folder})
	}
	return name == pattern
}

func fitsAny(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return fits(name, pattern) })
}

// below reports whether a path is one of the folders or inside one.
func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders,
		func(folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") })
}
