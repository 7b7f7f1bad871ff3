package tree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxFamily bounds the processes of a ReadFamily.
const maxFamily = 1000

// errLargeFamily means that a process has more descendants than a ReadFamily reads.
var errLargeFamily = errors.New("the process has too many descendants to read them alone")

// errNoFamilies means that the kernel does not list the children of processes.
var errNoFamilies = errors.New("this kernel does not list the children of processes")

// ReadFamily reads a process and its descendants, as the kernel lists them, and no other process. What it returns may
// lack a child if another one ends meanwhile, and lacks processes that have lost their parent. It fails if the kernel
// keeps no such lists, or if there are more than maxFamily processes.
func ReadFamily(root int) (*Table, error) { return readFamily(root, maxFamily) }

func readFamily(root, most int) (*Table, error) {
	at := time.Now()
	e, err := ReadEntry(root)
	if err != nil || e == nil {
		return newTable(at, nil), err
	}
	entries := []*Entry{e}
	for i := 0; i < len(entries); i++ {
		children, err := readChildren(entries[i].PID)
		if err != nil {
			return nil, err
		}
		if len(entries)+len(children) > most {
			return nil, errLargeFamily
		}
		for _, pid := range children {
			child, err := ReadEntry(pid)
			if err != nil {
				return nil, err
			}
			if child != nil && child.Parent == entries[i].PID { // otherwise the number has been reused
				entries = append(entries, child)
			}
		}
	}
	return newTable(at, entries), nil
}

// readChildren reads the children of all threads of a process; none if it is gone.
func readChildren(pid int) (children []int, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, ignoreGone(err)
	}
	buffer := make([]byte, 1<<10)
	for _, thread := range threads {
		list, err := readProc(pid, "task/"+thread.Name()+"/children", buffer)
		for err == nil && len(list) == len(buffer) { // it may go on
			buffer = make([]byte, 2*len(buffer))
			list, err = readProc(pid, "task/"+thread.Name()+"/children", buffer)
		}
		if errors.Is(err, unix.ENOENT) && threadExists(pid, thread.Name()) {
			return nil, errNoFamilies
		}
		if err := ignoreGone(err); err != nil {
			return nil, err
		}
		for _, word := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(word)); err == nil {
				children = append(children, child)
			}
		}
	}
	return children, nil
}

func threadExists(pid int, thread string) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%s", pid, thread))
	return err == nil
}
