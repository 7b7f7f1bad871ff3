package process

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// reaperName is the reaper's argv[0], by which the program knows that it was started as one and an operator recognises it.
const reaperName = "tempool-reaper"

// The reaper's descriptors.
const (
	reaperOrdersFD = 3
	reaperReadyFD  = 4
)

// order is one line on the reaper's pipe.
type order struct {
	// Op is watch (kill this tree when the pipe ends; a later watch for the same cookie replaces it), forget, or dismiss (the
	// supervisor ended in order: exit without killing).
	Op  string  `json:"op"`
	Key treeKey `json:"key,omitzero"`
}

const (
	opWatch   = "watch"
	opForget  = "forget"
	opDismiss = "dismiss"
)

var reaperHooked atomic.Bool

// RunReaperIfAsked must be the first statement of main, and of TestMain, in every program that may host a Supervisor: the running program
// is started once more as the reaper, and as the launcher of each worker under limits. In those processes this function never
// returns. In any other it returns at once.
func RunReaperIfAsked() {
	reaperHooked.Store(true)
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case launcherName:
		runLauncher()
	case reaperName:
		runReaper()
	}
}

func runReaper() {
	// Whoever ends the agent in a hurry signals its group, its terminal or everything by name; the reaper is what is left then.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	if os.Chdir("/") != nil {
		os.Exit(1)
	}
	ready := os.NewFile(reaperReadyFD, "ready")
	if _, err := ready.Write([]byte{'\n'}); err != nil {
		os.Exit(1)
	}
	ready.Close()
	reap(awaitOrphans(os.NewFile(reaperOrdersFD, "orders")))
	syscall.Exit(0) // there is nothing to flush, and in a build with the race detector os.Exit takes a second
}

// awaitOrphans follows orders until their sender is gone, and returns the trees it left behind.
func awaitOrphans(orders io.Reader) map[string]treeKey {
	watched := make(map[string]treeKey)
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		var o order
		if json.Unmarshal(lines.Bytes(), &o) != nil {
			continue // a line the sender's death cut short
		}
		switch o.Op {
		case opWatch:
			watched[o.Key.Cookie] = o.Key
		case opForget:
			delete(watched, o.Key.Cookie)
		case opDismiss:
			return nil
		}
	}
	return watched
}

// reap kills all trees at once, so that one whose members do not die holds up no other.
func reap(trees map[string]treeKey) {
	var all sync.WaitGroup
	for _, key := range trees {
		all.Go(func() { killTree(key) })
	}
	all.Wait()
}
