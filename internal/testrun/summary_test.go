package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// summed is what a run with these events prints.
func summed(t *testing.T, events string) string {
	t.Helper()
	var out strings.Builder
	s := newSummary(&out)
	for line := range strings.Lines(events) {
		var e event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		s.add(e)
	}
	s.end(1, 61*time.Second)
	return out.String()
}

func TestTheLastLineNamesWhatSkippedTestsOfAllPackagesNeed(t *testing.T) {
	out := summed(t, `{"Action":"run","Package":"example/a","Test":"TestOne"}
{"Action":"output","Package":"example/b","Test":"TestTwo/part","Output":"    x_test.go:1: missing: podman, runc\n"}
{"Action":"output","Package":"example/a","Test":"TestOne","Output":"noise\n"}
{"Action":"pass","Package":"example/a","Test":"TestOne","Elapsed":1.5}
{"Action":"skip","Package":"example/b","Test":"TestTwo/part"}
{"Action":"pass","Package":"example/b","Test":"TestTwo","Elapsed":0.5}
{"Action":"output","Package":"example/b","Test":"TestThree","Output":"    x_test.go:9: missing: podman\n"}
{"Action":"skip","Package":"example/b","Test":"TestThree"}
{"Action":"pass","Package":"example/a","Elapsed":2}
{"Action":"pass","Package":"example/b","Elapsed":1}
`)
	require.Equal(t, `ok    example/a  2.0s
ok    example/b  1.0s
   1.5s  example/a TestOne
2 tests passed in 1m1s, 2 skipped: podman, runc; scripts/setup-debian.sh installs them
`, out)
}

func TestARightIsNotInstalled(t *testing.T) {
	out := summed(t, `{"Action":"output","Package":"example/a","Test":"TestOne","Output":"    x_test.go:1: missing: root\n"}
{"Action":"skip","Package":"example/a","Test":"TestOne"}
`)
	require.Contains(t, out, "0 tests passed in 1m1s, 1 skipped: root; root may do the rest")
	require.NotContains(t, out, "setup-debian")
}

func TestWhatFailedIsPrintedAndNamed(t *testing.T) {
	out := summed(t, `{"Action":"output","Package":"example/a","Test":"TestOne","Output":"it went wrong\n"}
{"Action":"output","Package":"example/a","Test":"TestTwo","Output":"panic\n"}
{"Action":"fail","Package":"example/a","Test":"TestOne","Elapsed":1}
{"Action":"output","Package":"example/a","Test":"TestThree","Output":"panic: of another goroutine\n"}
{"Action":"pass","Package":"example/a","Test":"TestThree","Elapsed":0.5}
{"Action":"fail","Package":"example/a","Elapsed":2}
{"Action":"build-output","ImportPath":"example/b","Output":"does not compile\n"}
{"Action":"fail","Package":"example/b","FailedBuild":"example/b"}
`)
	require.Equal(t, `it went wrong
panic
panic: of another goroutine
FAIL  example/a  2.0s
does not compile
FAIL  example/b  0.0s
   1.0s  example/a TestOne
failed: example/a TestOne
failed: example/a TestTwo
failed: example/b 
3 FAILED, 1 tests passed in 1m1s, none skipped
`, out)
}

func TestTheExitCodeIsThatOfGoTest(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
	write("go.mod", "module example\n")
	write("good_test.go", "package example\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n")
	var out strings.Builder
	require.Zero(t, run(&out, 0, []string{"./..."}), out.String())
	require.Contains(t, out.String(), "1 tests passed")
	write("bad_test.go", "package example\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Fail() }\n")
	require.Equal(t, 1, run(&out, 0, []string{"./..."}), out.String())
	require.Contains(t, out.String(), "1 FAILED, 1 tests passed")
}
