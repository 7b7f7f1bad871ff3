package tree

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// freezeTimeout bounds Freeze and Thaw.
const freezeTimeout = 2 * time.Second

// Freeze stops every process of the tree (SIGSTOP), and scans again until all of them have stopped: one that has not
// may fork. Parents stop before their children, so none of them sees a child stop. One that is blocked in the kernel
// stops before it runs again: a parent in vfork waits for a child that has stopped before it executed its program.
// Freeze fails if some still run after 2 seconds.
func Freeze(k Key) error {
	return signalUntil(k, syscall.SIGSTOP, "stop", func(members []*Entry) []*Entry { return members },
		func(e *Entry, signalled bool) bool { return e.Stopped || e.Blocked && signalled })
}

// Thaw continues every process of a frozen tree (SIGCONT), children before their parents. Each is signalled, since one
// may be about to stop.
func Thaw(k Key) error {
	return signalUntil(k, syscall.SIGCONT, "continue", func(members []*Entry) []*Entry {
		slices.Reverse(members)
		return members
	}, func(e *Entry, signalled bool) bool { return !e.Stopped && signalled })
}

func signalUntil(k Key, sig syscall.Signal, what string, order func([]*Entry) []*Entry,
	reached func(e *Entry, signalled bool) bool) error {
	deadline := time.Now().Add(freezeTimeout)
	signalled := map[Identity]bool{}
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		var pending []*Entry
		late := !time.Now().Before(deadline) // as of before the scan: only the next one sees what its signals do
		t, err := ScanTable(nil)
		if err == nil {
			pending = slices.DeleteFunc(order(t.Members(k)), func(e *Entry) bool { return reached(e, signalled[e.Identity]) })
			if len(pending) == 0 {
				return nil
			}
			for _, e := range pending {
				// fails for one that has ended, or that the next scan finds again
				signalled[e.Identity] = Signal(e.Identity, sig) == nil
			}
		}
		switch {
		case !late:
		case err != nil:
			return fmt.Errorf("read the process table: %w", err)
		default:
			return fmt.Errorf("%d processes did not %s within %s; the first has PID %d", len(pending), what, freezeTimeout,
				pending[0].PID)
		}
		time.Sleep(delay)
	}
}
