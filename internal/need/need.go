// Package need skips a test on a machine that lacks something which the test needs. With TEMPOOL_TEST_ALL=1 it fails
// the test instead: where everything is to be tested, nothing may be missing. It is the only place that skips tests
// (scripts/check-tree.sh), and scripts/test.sh sums up what it says.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// prefix begins the reason of each skip; the names of what is missing follow, separated by commas.
const prefix = "missing: "

// Program skips a test without these programs on the PATH.
func Program(t testing.TB, names ...string) {
	t.Helper()
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	skip(t, missing)
}

// PythonModule skips a test whose program, run by an interpreter, cannot import a module.
func PythonModule(t testing.TB, interpreter, module string) {
	t.Helper()
	if exec.Command(interpreter, "-c", "import "+module).Run() != nil {
		skip(t, []string{"the Python module " + module})
	}
}

// Root skips a test that does not run as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, []string{"root"})
	}
}

// RightTo skips a test whose process may not do something; err, which is nil if it may, is the result of a try.
func RightTo(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Logf("%s: %v", what, err)
		skip(t, []string{"the right to " + what})
	}
}

// NetworkNamespaces skips a test that cannot make network namespaces with the program ip.
func NetworkNamespaces(t testing.TB) {
	t.Helper()
	Program(t, "ip")
	name := fmt.Sprintf("tempool-need-%d-%d", os.Getpid(), tries.Add(1))
	err := exec.Command("ip", "netns", "add", name).Run()
	if err == nil {
		err = exec.Command("ip", "netns", "del", name).Run()
	}
	RightTo(t, "make network namespaces", err)
}

var tries atomic.Int64

func skip(t testing.TB, missing []string) {
	t.Helper()
	if len(missing) == 0 {
		return
	}
	if os.Getenv("TEMPOOL_TEST_ALL") == "1" {
		t.Fatalf("%s%s; scripts/setup-debian.sh installs programs", prefix, strings.Join(missing, ", "))
	} else {
		t.Skip(prefix + strings.Join(missing, ", "))
	}
}
