package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/sleep"
)

// noMark is the limit of processes that descend from no worker. It leaves half of the numbers of a mark to agents that
// run within a worker.
const noMark = Mark(1) << 62

// ownMark is the number that marks must be below: this program's own limit.
var ownMark = sync.OnceValue(func() Mark {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &limit); err != nil {
		return 0
	}
	self, err := showsLimit(unix.Getpid())
	if err != nil || self != min(Mark(limit.Max), noMark) {
		return 0 // a system that does not show limits
	}
	return self
})

// readMark returns the mark of a process; 0 if it descends from no worker of this program, or is gone.
func readMark(pid int) (Mark, error) {
	if !HasMarks() {
		return 0, nil
	}
	limit, err := readLimit(pid)
	if err != nil {
		return 0, ignoreGone(err)
	}
	if limit == noMark || limit == ownMark() {
		return 0, nil
	}
	return limit, nil
}

// limitName begins the line of /proc/<pid>/limits that holds marks; the soft and the hard limit follow.
var limitName = []byte("Max file locks ")

// readLimit returns the limit of a process, at most noMark; noMark for a process that shows none, such as a zombie.
func readLimit(pid int) (Mark, error) {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) == nil {
		return min(Mark(limit.Max), noMark), nil
	}
	return showsLimit(pid)
}

// showsLimit is readLimit from the process's file, at ten times the cost, which also shows the limits of other users'
// processes.
func showsLimit(pid int) (Mark, error) {
	var buffer [4096]byte
	data, err := readProc(pid, "limits", buffer[:])
	if err != nil {
		return 0, err
	}
	_, line, found := bytes.Cut(data, limitName)
	fields := bytes.Fields(line[:max(bytes.IndexByte(line, '\n'), 0)])
	if !found || len(fields) < 2 {
		return noMark, nil
	}
	hard, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil { // unlimited
		return noMark, nil
	}
	return min(Mark(hard), noMark), nil
}

// Below returns a random mark that a process with this one can change to; 0 if this one is none. Call Retire when its
// tree is gone.
func (m Mark) Below() Mark {
	lowest := ownMark() / 2
	if m <= lowest+minMarks {
		return 0
	}
	return newMark(lowest, m)
}

// Adopt makes a process that a member of a tree with the mark from has forked the root of a tree of its own, with the
// mark to. It fails unless the process leads a session and becomes a child of this program before ctx ends: its parent
// must exit. Reap it with ReapChild.
func Adopt(ctx context.Context, pid int, from, to Mark) (Identity, error) {
	for delay := 50 * time.Microsecond; ; delay = min(2*delay, 5*time.Millisecond) {
		e, err := ReadEntry(pid)
		switch {
		case err != nil:
			return Identity{}, err
		case e == nil || e.Zombie:
			return Identity{}, errors.New("it has ended")
		case e.Parent != os.Getpid():
			if !sleep.For(ctx.Done(), delay) {
				return Identity{}, fmt.Errorf("the process that forked it has not exited: %w", context.Cause(ctx))
			}
			continue
		case e.Session != pid || e.pgid != pid:
			return Identity{}, errors.New("it leads no session of its own (setsid)")
		}
		if mark, err := readMark(pid); err != nil || mark != from {
			return Identity{}, errors.Join(err, errors.New("it does not descend from the template"))
		}
		if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: uint64(to), Max: uint64(to)}, nil); err != nil {
			return Identity{}, fmt.Errorf("mark it: %w", err)
		}
		if !Reclaim(e.Identity) {
			return Identity{}, errors.New("it has ended")
		}
		return e.Identity, nil
	}
}
