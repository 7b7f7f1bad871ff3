// Package reaper kills the process trees of an agent that dies without stopping them. The agent executes its own
// program again as the reaper and sends it commands over a pipe; when the pipe closes, the reaper kills every tree that
// it was asked to watch.
package reaper

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/reexec"
	"github.com/tempool/tempool/process/tree"
)

// Name is the reaper's argv[0].
const Name = "tempool-reaper"

// command is one line on the reaper's pipe.
type command struct {
	// Op is watch (kill this tree when the pipe closes; a later watch for the same cookie replaces it), forget, or
	// dismiss (the agent shut down cleanly: exit without killing).
	Op  string   `json:"op"`
	Key tree.Key `json:"key,omitzero"`
}

const (
	opWatch   = "watch"
	opForget  = "forget"
	opDismiss = "dismiss"
)

// A program that is executed as the reaper becomes it, as with the launcher.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Name {
		run()
	}
}

// run is the main function of the reaper. It never returns.
func run() {
	commands, ready := reexec.Enter()
	ready()
	KillAll(readCommands(commands))
	syscall.Exit(0) // there is nothing to flush, and in a build with the race detector os.Exit takes a second
}

// readCommands follows commands until the pipe closes, and returns the trees that are still watched.
func readCommands(commands io.Reader) map[string]tree.Key {
	watched := make(map[string]tree.Key)
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		var c command
		if json.Unmarshal(lines.Bytes(), &c) != nil {
			continue // truncated by the agent's death
		}
		switch c.Op {
		case opWatch:
			watched[c.Key.Cookie] = c.Key
		case opForget:
			delete(watched, c.Key.Cookie)
		case opDismiss:
			return nil
		}
	}
	return watched
}

// Dismiss makes the reaper at the other end of its pipe exit without killing.
func Dismiss(commands io.Writer) {
	_, _ = commands.Write([]byte(`{"op":"` + opDismiss + `"}` + "\n")) // a reaper that has exited needs none
}

// KillAll kills all trees concurrently, so that one that does not die delays no other.
func KillAll(trees map[string]tree.Key) {
	var all sync.WaitGroup
	for _, key := range trees {
		all.Go(func() {
			tree.Kill(key)
			if key.Cgroup != "" { // the cgroup around it may be the next agent's by now
				_ = limits.RemoveCgroup(key.Cgroup, os.Remove)
			}
		})
	}
	all.Wait()
}
