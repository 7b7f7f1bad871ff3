package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/sleep"
)

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
