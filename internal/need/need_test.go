package need

import (
	"errors"
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
