package tree

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/sleep"
)

const (
	// orphanBatchDelay batches deaths, so that one read of the process table serves many.
	orphanBatchDelay = 100 * time.Millisecond
	// unknownChildDelay is how long an unknown dead child is left to other code in this program that may have started it.
	unknownChildDelay = 200 * time.Millisecond
)

// BecomeSubreaper makes orphaned descendants children of this process.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	return nil
}

// ReapOrphans reaps adopted descendants that have died, until ctx ends. Children that other code waits for are left
// alone: StartChild registers its own, and a child of other code in this program, which is of no tree that OwnTrees
// knows, shares our session or gets unknownChildDelay.
func ReapOrphans(ctx context.Context, logger *slog.Logger) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	unknown := make(map[Identity]time.Time)
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-died:
		case <-retry.C:
		}
		if !sleep.For(ctx.Done(), orphanBatchDelay) {
			return
		}
		if !hasDeadChild() {
			clear(unknown)
			continue
		}
		t, err := ReadTable()
		if err != nil {
			logger.Error("cannot find dead orphans", "error", err)
			continue
		}
		if reapDead(t, unknown) > 0 {
			retry.Reset(unknownChildDelay)
		}
	}
}

// hasDeadChild reports whether any child, orphan or not, is waiting to be reaped.
func hasDeadChild() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// reapDead reaps the dead children that are orphans, and returns how many it could not decide on yet. unknown holds
// since when it knows those.
func reapDead(t *Table, unknown map[Identity]time.Time) (undecided int) {
	startedChildren.mu.Lock()
	defer startedChildren.mu.Unlock()
	ownSession, _ := unix.Getsid(0) // never fails
	for id := range unknown {
		if !t.has(id) {
			delete(unknown, id)
		}
	}
	for _, child := range t.children[os.Getpid()] {
		if _, started := startedChildren.pids.Load(child.PID); started || !child.Zombie || child.Session == ownSession {
			continue
		}
		if !isOwned(child) {
			since, seen := unknown[child.Identity]
			if !seen {
				unknown[child.Identity] = t.At
			}
			if !seen || t.At.Sub(since) < unknownChildDelay {
				undecided++
				continue
			}
		}
		ReapOrphan(child.Identity)
		delete(unknown, child.Identity)
	}
	return undecided
}

// owners say which processes belong to a tree of theirs: *func(*Entry) bool → struct{}. All of this program's are
// asked, since a program adopts the processes of all its trees.
var owners sync.Map

// OwnTrees excludes from KillEscaped the processes for which belongs is true, until release is called. ReapOrphans
// reaps those that are dead at once.
func OwnTrees(belongs func(*Entry) bool) (release func()) {
	owners.Store(&belongs, struct{}{})
	return func() { owners.Delete(&belongs) }
}

// escapedAge is how old the process table behind a KillEscaped may be: the end of a tree has just read it.
const escapedAge = 500 * time.Millisecond

// KillEscaped kills the living processes that this program has adopted, that descend from a worker, and that belong to
// no tree which is to live, with all their descendants. It returns how many it killed. Children of other code in this
// program have no mark and are left alone.
func KillEscaped() (killed int, err error) {
	t, err := RecentTable(escapedAge)
	if err != nil {
		return 0, err
	}
	escaped := &MemberSet{ids: make(map[Identity]time.Time)}
	for _, child := range t.children[os.Getpid()] {
		if _, started := startedChildren.pids.Load(child.PID); !started && child.mark != 0 && !isOwned(child) {
			escaped.ids[child.Identity] = time.Time{} // which any table may correct
		}
	}
	if len(escaped.ids) == 0 {
		return 0, nil
	}
	report := Kill(Key{Known: escaped})
	return report.Killed, report.Err
}

func isOwned(e *Entry) bool {
	if _, owned := living.Load(e.mark); owned {
		return true
	}
	owned := false
	owners.Range(func(key, _ any) bool {
		owned = (*key.(*func(*Entry) bool))(e)
		return !owned
	})
	return owned
}
