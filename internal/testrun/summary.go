package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/internal/need"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// test names a test; of a package as a whole, Test is "".
type test struct{ Package, Test string }

// pkg is the short name of its package.
func (t test) pkg() string { return strings.TrimPrefix(t.Package, "github.com/tempool/tempool/") }

type result struct {
	test
	took float64 // seconds
}

// summary sums up the events of any number of packages that are tested at the same time.
type summary struct {
	out         io.Writer
	output      map[test]*strings.Builder // of tests and packages that have not ended
	results     []result                  // of tests that are no subtests
	failures    []test
	passed      int
	skipped     int
	missing     map[string]bool // what skipped tests need
	unexplained bool            // a test was skipped for another reason
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, output: map[test]*strings.Builder{}, missing: map[string]bool{}}
}

func (s *summary) add(e event) {
	id := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		if s.output[id] == nil {
			s.output[id] = &strings.Builder{}
		}
		s.output[id].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(id, e)
		} else {
			s.endTest(id, e)
		}
	}
}

// take returns what a test or package has printed, and forgets it.
func (s *summary) take(id test) string {
	written := s.output[id]
	if written == nil {
		return ""
	}
	delete(s.output, id)
	return written.String()
}

func (s *summary) endTest(id test, e event) {
	text, top := s.take(id), !strings.Contains(e.Test, "/")
	if top {
		s.results = append(s.results, result{id, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		if top {
			s.passed++
		}
		if strings.Contains(text, "panic: ") { // another goroutine's, which ends the package, if it is that
			s.add(event{Action: "output", Package: e.Package, Output: text})
		}
	case "fail":
		s.fail(id, text)
	case "skip": // the parent of a skipped subtest passes
		s.skipped++
		s.explain(text)
	}
}

func (s *summary) fail(id test, text string) {
	fmt.Fprint(s.out, text)
	s.failures = append(s.failures, id)
}

// explain notes what a skipped test needs.
func (s *summary) explain(text string) {
	_, names, found := strings.Cut(text, need.Prefix)
	if !found {
		s.unexplained = true
		return
	}
	names, _, _ = strings.Cut(names, "\n")
	for name := range strings.SplitSeq(names, ", ") {
		s.missing[name] = true
	}
}

func (s *summary) endPackage(id test, e event) {
	of := func(t test) bool { return t.Package == id.Package }
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok    %s  %.1fs\n", id.pkg(), e.Elapsed)
	case "fail":
		for _, unended := range slices.SortedFunc(maps.Keys(s.output),
			func(a, b test) int { return cmp.Compare(a.Test, b.Test) }) {
			if of(unended) && unended.Test != "" {
				s.fail(unended, s.take(unended))
			}
		}
		fmt.Fprint(s.out, s.take(id))
		if !slices.ContainsFunc(s.failures, of) { // it was not built, or exited
			s.failures = append(s.failures, id)
		}
		fmt.Fprintf(s.out, "FAIL  %s  %.1fs\n", id.pkg(), e.Elapsed)
	}
	maps.DeleteFunc(s.output, func(t test, _ *strings.Builder) bool { return of(t) })
}

// end prints the slowest tests, the failed ones, and the summary.
func (s *summary) end(slowest int, took time.Duration) {
	slices.SortFunc(s.results, func(a, b result) int { return cmp.Compare(b.took, a.took) })
	for _, r := range s.results[:min(slowest, len(s.results))] {
		fmt.Fprintf(s.out, "%6.1fs  %s %s\n", r.took, r.pkg(), r.Test)
	}
	for _, id := range s.failures {
		fmt.Fprintf(s.out, "failed: %s %s\n", id.pkg(), id.Test)
	}
	fmt.Fprintln(s.out, s.line(took))
}

// line is the last line of a run.
func (s *summary) line(took time.Duration) string {
	line := fmt.Sprintf("%d tests passed in %s", s.passed, took.Round(time.Second))
	if len(s.failures) > 0 {
		line = fmt.Sprintf("%d FAILED, ", len(s.failures)) + line
	}
	if s.skipped == 0 {
		return line + ", none skipped"
	}
	names := slices.Sorted(maps.Keys(s.missing))
	if s.unexplained {
		names = append(names, "for a reason of their own")
	}
	line += fmt.Sprintf(", %d skipped: %s", s.skipped, strings.Join(names, ", "))
	var remedies []string
	if slices.ContainsFunc(names, func(name string) bool { return !needsRight(name) }) {
		remedies = append(remedies, "scripts/setup-debian.sh installs them")
	}
	if slices.ContainsFunc(names, needsRight) {
		remedies = append(remedies, "root may do the rest, but for some containers")
	}
	return strings.Join(append([]string{line}, remedies...), "; ")
}

// needsRight says that what a test needs is not a program.
func needsRight(name string) bool {
	return name == need.Superuser || strings.HasPrefix(name, need.Right)
}
