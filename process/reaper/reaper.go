// Package reaper kills the process trees of an agent that dies without stopping them. The agent executes its own program again as the
// reaper and sends it commands over a pipe; when the pipe closes, the reaper kills every tree that it was asked to watch.
package reaper

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/tree"
)

// Name is the reaper's argv[0]; a program started under it must call Run.
const Name = "tempool-reaper"

// The reaper's descriptors.
const (
	commandsFD = 3
	readyFD    = 4
)

// command is one line on the reaper's pipe.
type command struct {
	// Op is watch (kill this tree when the pipe closes; a later watch for the same cookie replaces it), forget, or dismiss (the agent
	// shut down cleanly: exit without killing).
	Op  string   `json:"op"`
	Key tree.Key `json:"key,omitzero"`
}

const (
	opWatch   = "watch"
	opForget  = "forget"
	opDismiss = "dismiss"
)

// Run is the main function of the reaper. It never returns.
func Run() {
	// A signal to the agent's group, its terminal or all programs of its name must not end the reaper.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	if os.Chdir("/") != nil {
		os.Exit(1)
	}
	ready := os.NewFile(readyFD, "ready")
	if _, err := ready.Write([]byte{'\n'}); err != nil {
		os.Exit(1)
	}
	ready.Close()
	KillAll(readCommands(os.NewFile(commandsFD, "commands")))
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
			removeCgroup(key.Cgroup)
		})
	}
	all.Wait()
}

const (
	cgroupRemoveTimeout = 2 * time.Second
	cgroupRemoveRetry   = 5 * time.Millisecond
)

// removeCgroup removes the cgroup of a tree that was killed, once the last process has left it. The cgroup around it may be the next agent's
// by now.
func removeCgroup(dir string) {
	if dir == "" {
		return
	}
	for deadline := time.Now().Add(cgroupRemoveTimeout); time.Now().Before(deadline); time.Sleep(cgroupRemoveRetry) {
		if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}
