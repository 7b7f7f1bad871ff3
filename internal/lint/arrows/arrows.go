// Package arrows checks that the packages of this module import each other in one direction only, from the shells down
// to the pure core. Its test checks the module itself, so a wrong arrow fails `go test ./...`.
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

// Package is what the rules need to know of one package; tests are left out of all of it.
type Package struct {
	Path    string   // import path
	Name    string   // "main" for a command
	Imports []string // direct
	Deps    []string // direct and indirect
	Lines   int      // of all its files
}

// A rule binds the packages at Path, which is relative to the module and "" for its root; "/..." at the end adds those
// below. The first rule that fits a package counts.
type rule struct {
	path  string
	ours  []string // what of the module it may import, in the notation of path
	never []string // what it may not even depend on, outside the module, each with all below it
}

const temporal = "go.temporal.io"

// clients are what the packages below the client never depend on: Temporal, and what it is spoken to with.
var clients = []string{temporal, "google.golang.org/grpc"}

// outside is what makes a package impure: the system, other machines, chance and Temporal.
var outside = []string{temporal, "net", "os", "math/rand", "crypto/rand"}

// rules say which arrows there are. A package that none fits is free, but may itself be imported only where it is named.
var rules = []rule{
	{path: "lifecycle/...", never: clients},
	{path: "policy/fromspec", ours: []string{"policy", "spec"}, never: clients},
	{path: "policy/...", ours: []string{"lifecycle/..."}, never: clients},
	{path: "spec/...", never: clients},
	{path: "api", ours: []string{"lifecycle", "spec"}, never: clients},
	{path: "", ours: []string{"api", "lifecycle", "spec"}},
	{path: "workflows/...", ours: []string{"api", "lifecycle/...", "policy/...", "spec/...", "workflows/..."}},
	{path: "process/wire/...", ours: []string{"process/wire/..."}, never: clients},
	{path: "process/...", ours: []string{"api", "lifecycle", "process/...", "spec"}, never: clients},
	{path: "sessions/...", ours: []string{"api", "sessions/...", "spec"}, never: clients},
	{path: "activities/...", ours: []string{"api", "lifecycle", "policy/...", "process/...", "spec", "activities/..."}},
	{path: "gateway/...", ours: []string{"", "api", "lifecycle", "process/...", "sessions/...", "spec", "gateway/..."}},
	{path: "worker/...", ours: []string{"", "api", "lifecycle", "policy/...", "spec", "workflows", "activities", "process/...", "gateway/...", "sessions/...", "worker/..."}},
	// A program that hosts an agent is also its reaper, which it must become before anything else happens.
	{path: "cmd/worker", ours: []string{"internal/...", "worker", "process"}},
	{path: "cmd/starter", ours: []string{"internal/...", "process"}},
	{path: "cmd/...", ours: []string{"internal/...", "worker"}},
	{path: "internal/devserver", ours: []string{"", "api"}},
}

// pure packages import nothing that reaches outside; what their imports reach in turn is theirs to answer for.
var pure = []string{"lifecycle/...", "policy/..."}

// Check returns one sentence for each arrow that points up, sorted.
func Check(packages []Package) []string {
	var wrong []string
	for _, p := range packages {
		name := relative(p.Path)
		if p.Name == "main" && fits(name, "cmd/...") && p.Lines > MaxMainLines {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines, a main package at most %d; move its logic to internal/", p.Path, p.Lines, MaxMainLines))
		}
		if fitsAny(name, pure) {
			for _, imported := range p.Imports {
				if below(imported, outside) {
					wrong = append(wrong, fmt.Sprintf("%s imports %s; it is pure and is given such facts as values", p.Path, imported))
				}
			}
		}
		at := slices.IndexFunc(rules, func(r rule) bool { return fits(name, r.path) })
		if at < 0 {
			continue
		}
		for _, imported := range p.Imports {
			if ours(imported) && !fitsAny(relative(imported), rules[at].ours) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s; that arrow points up", p.Path, imported))
			}
		}
		for _, dependency := range p.Deps {
			if below(dependency, rules[at].never) {
				wrong = append(wrong, fmt.Sprintf("%s depends on %s, which it must not know", p.Path, dependency))
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

// below reports whether a path is one of the folders or in one.
func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") })
}
