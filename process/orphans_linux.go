package process

import (
	"context"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// orphanPause gathers the deaths of many into one look at the process table.
	orphanPause = 100 * time.Millisecond
	// strangerPatience is how long a dead child that nobody here knows is left for whoever else in this program may have started it.
	strangerPatience = 200 * time.Millisecond
)

// reapOrphans waits for adopted descendants that died, until ctx ends. Children that anybody waits for are left alone: those of this
// package are listed, and those which other code in this program started share our session or get strangerPatience.
func (s *Supervisor) reapOrphans(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	defer signal.Stop(died)
	strangers := make(map[identity]time.Time)
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-died:
		case <-retry.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(orphanPause):
		}
		if !deadChild() {
			clear(strangers)
			continue
		}
		t, err := glance()
		if err != nil {
			s.logger.Error("dead orphans cannot be found", "error", err)
			continue
		}
		if s.reapDead(t, strangers) > 0 {
			retry.Reset(strangerPatience)
		}
	}
}

// deadChild reports whether any child, of whatever kind, is waiting to be reaped.
func deadChild() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// reapDead reaps the dead children that are orphans, and returns how many might be but must be looked at again. strangers holds
// since when those are known.
func (s *Supervisor) reapDead(t *table, strangers map[identity]time.Time) (undecided int) {
	ownChildren.mu.Lock()
	defer ownChildren.mu.Unlock()
	self := os.Getpid()
	ownSession := -1
	if own := t.rows[self]; own != nil {
		ownSession = own.sid
	}
	for id := range strangers {
		if r := t.rows[id.PID]; r == nil || r.Start != id.Start {
			delete(strangers, id)
		}
	}
	for _, r := range t.children[self] {
		if _, own := ownChildren.pids.Load(r.PID); own || !r.zombie || r.sid == ownSession {
			continue
		}
		if !s.isMember(r) {
			since, seen := strangers[r.identity]
			if !seen {
				strangers[r.identity] = t.at
			}
			if !seen || t.at.Sub(since) < strangerPatience {
				undecided++
				continue
			}
		}
		reapAdopted(r.identity)
		delete(strangers, r.identity)
	}
	return undecided
}
