package tree

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parentOf starts a process with this many children, whose first thread is their parent, and returns their numbers.
func parentOf(t *testing.T, children int) (parent int, numbers map[int]bool) {
	t.Helper()
	cmd := exec.Command("python3", "-c", `
import os, signal, sys
children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.pause()
    children.append(child)
print(*children, flush=True)
sys.stdin.read()
for child in children:
    os.kill(child, signal.SIGKILL)
`, strconv.Itoa(children))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = t.Output()
	require.NoError(t, StartChild(cmd))
	t.Cleanup(func() {
		in.Close()
		_ = WaitChild(cmd)
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	numbers = map[int]bool{}
	for word := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(word)
		require.NoError(t, err)
		numbers[pid] = true
	}
	require.Len(t, numbers, children)
	return cmd.Process.Pid, numbers
}

func TestAllChildrenOfAProcessAreRead(t *testing.T) {
	parent, numbers := parentOf(t, 500)
	table, err := ReadFamily(parent)
	require.NoError(t, err)
	require.Len(t, table.children[parent], 500)
	for _, child := range table.children[parent] {
		delete(numbers, child.PID)
	}
	require.Empty(t, numbers, "no child may be missing")
	_, err = readFamily(parent, 500)
	require.ErrorIs(t, err, errLargeFamily, "a part is not returned as the whole")
}
