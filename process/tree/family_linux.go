package tree

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxFamily bounds the processes of a ReadFamily.
const maxFamily = 1000

// errLargeFamily means that a process has more descendants than a ReadFamily reads.
var errLargeFamily = errors.New("the process has too many descendants to read them alone")

// ReadFamily reads a process and its descendants, as the kernel lists them, and no other process. What it returns may
// lack a child if another one ends meanwhile, and lacks processes that have lost their parent. On a kernel that keeps
// no such lists it has the process alone. It fails if there are more than maxFamily processes.
func ReadFamily(root int) (*Table, error) { return readFamily(root, maxFamily) }

func readFamily(root, most int) (*Table, error) {
	at := time.Now()
	e, err := ReadEntry(root)
	if err != nil || e == nil {
		return newTable(at, nil), err
	}
	entries := []*Entry{e}
	for i := 0; i < len(entries); i++ {
		for _, pid := range childrenOf(entries[i].PID) {
			child, err := ReadEntry(pid)
			if err != nil {
				return nil, err
			}
			if child == nil || child.Parent != entries[i].PID { // the number has been reused
				continue
			}
			if len(entries) == most {
				return nil, errLargeFamily
			}
			entries = append(entries, child)
		}
	}
	return newTable(at, entries), nil
}

// childrenOf reads the children of all threads of a process; none of a process or a thread that is gone.
func childrenOf(pid int) (children []int) {
	tasks := fmt.Sprintf("/proc/%d/task/", pid)
	threads, _ := os.ReadDir(tasks)
	for _, thread := range threads {
		text, _ := os.ReadFile(tasks + thread.Name() + "/children")
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
