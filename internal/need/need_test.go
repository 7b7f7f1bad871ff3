package need

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is a test that says how it ended.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                        {}
func (r *recorder) Logf(string, ...any)            {}
func (r *recorder) Skip(args ...any)               { r.skipped = args[0].(string) }
func (r *recorder) Fatalf(format string, a ...any) { r.failed = format }

func TestATestIsSkippedWhereSomethingIsMissingAndFailsWhereNothingMayBe(t *testing.T) {
	for name, c := range map[string]struct {
		need func(testing.TB)
		want string
	}{
		"programs": {func(t testing.TB) { Program(t, "sh", "no-such-program", "nor-such") },
			"missing: no-such-program, nor-such"},
		"a module": {func(t testing.TB) { PythonModule(t, "python3", "nosuch") }, "missing: the Python module nosuch"},
		"a right":  {func(t testing.TB) { RightTo(t, "mount", errors.New("not permitted")) }, "missing: the right to mount"},
		"nothing": {func(t testing.TB) {
			Program(t, "sh")
			PythonModule(t, "python3", "json")
			RightTo(t, "mount", nil)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TEMPOOL_TEST_ALL", "")
			r := &recorder{TB: t}
			c.need(r)
			require.Equal(t, c.want, r.skipped)
			require.Empty(t, r.failed)

			t.Setenv("TEMPOOL_TEST_ALL", "1")
			r = &recorder{TB: t}
			c.need(r)
			require.Empty(t, r.skipped)
			require.Equal(t, c.want != "", r.failed != "")
		})
	}
}

// TestTheLastLineOfARunSaysWhatSkippedTestsNeed runs scripts/test.sh with a gotestsum that has seen some events.
func TestTheLastLineOfARunSaysWhatSkippedTestsNeed(t *testing.T) {
	dir := t.TempDir()
	gotestsum, events := filepath.Join(dir, "gotestsum"), filepath.Join(dir, "events")
	require.NoError(t, os.WriteFile(gotestsum, []byte(`#!/bin/sh
[ "$1" != tool ] || exit 0
while [ "$1" != --jsonfile ]; do shift; done
cp "$(dirname "$0")/events" "$2"
exit 3
`), 0o700))
	for skips, want := range map[string]string{
		"":                    "No test was skipped.",
		"podman, runc|podman": "2 skipped: podman, runc; scripts/setup-debian.sh installs programs",
		"root":                "1 skipped: root; root has the rights, but for some containers",
		"ip|the right to mount": "2 skipped: ip, the right to mount; scripts/setup-debian.sh installs programs; " +
			"root has the rights, but for some containers",
	} {
		var lines strings.Builder
		for skip := range strings.SplitSeq(skips, "|") {
			lines.WriteString("{\"Action\":\"output\",\"Output\":\"noise\\n\"}\n")
			if skip != "" {
				fmt.Fprintf(&lines, "{\"Action\":\"output\",\"Output\":\"    x_test.go:1: %s%s\\n\"}\n", prefix, skip)
				lines.WriteString("{\"Action\":\"skip\",\"Test\":\"TestX\"}\n")
			}
		}
		require.NoError(t, os.WriteFile(events, []byte(lines.String()), 0o600))
		run := exec.Command("../../scripts/test.sh", "./...")
		run.Env = append(os.Environ(), "GOTESTSUM="+gotestsum)
		out, err := run.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 3, exit.ExitCode())
		require.Equal(t, want+"\n", string(out))
	}
}
