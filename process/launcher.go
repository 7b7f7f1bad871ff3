package process

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
)

// launcherName is the argv[0] of a program about to become a worker under limits. A limit that is set on a process from outside comes
// too late for what it did before; so the running program is started once more, limits itself, and then executes the worker's.
const launcherName = "tempool-launch"

// launchOrder is what the launcher is told on its socket: everything about the worker's program that it must not see in its own
// environment, which a build with libc would let decide what code it runs.
type launchOrder struct {
	Program string        `json:"program"`
	Args    []string      `json:"args"`
	Env     []string      `json:"env"`
	Who     *account      `json:"who,omitempty"`
	Limits  processLimits `json:"limits"`
}

// launchReply is the launcher's answer: one when its limits are in force, and a second one only if the program cannot be executed.
type launchReply struct {
	// Error is a sentence; empty when all went well.
	Error string `json:"error,omitempty"`
	// OpenFiles is the limit in force where it is lower than asked for, since the host allows no more.
	OpenFiles uint64 `json:"open_files,omitempty"`
}

// processLimits are the limits that a process sets on itself and its descendants inherit. A zero field is left alone.
type processLimits struct {
	OpenFiles   uint64 `json:"open_files,omitempty"`
	CPUSeconds  uint64 `json:"cpu_seconds,omitempty"`
	Affinity    []int  `json:"affinity,omitempty"`
	Nice        int    `json:"nice,omitempty"`
	OOMScoreAdj int    `json:"oom_score_adj,omitempty"`
}

func (l processLimits) none() bool {
	return l.OpenFiles == 0 && l.CPUSeconds == 0 && len(l.Affinity) == 0 && l.Nice == 0 && l.OOMScoreAdj == 0
}

// runLauncher reads its order, limits itself, and becomes the worker's program. It never returns.
func runLauncher() {
	runtime.LockOSThread() // some limits belong to the thread, and the executing one is the one that stays
	if len(os.Args) != 2 {
		os.Exit(1)
	}
	fd, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	closeOnExec(fd)
	link := os.NewFile(uintptr(fd), "launch")
	var order launchOrder
	if err := json.NewDecoder(link).Decode(&order); err != nil {
		os.Exit(1) // whoever gave the order is gone
	}
	refuse := func(err error) {
		_ = json.NewEncoder(link).Encode(launchReply{Error: err.Error()})
		os.Exit(1)
	}
	var reply launchReply
	if reply.OpenFiles, err = limitSelf(order.Limits); err != nil {
		refuse(err)
	}
	if err := order.Who.become(); err != nil {
		refuse(err)
	}
	if err := json.NewEncoder(link).Encode(reply); err != nil {
		os.Exit(1)
	}
	refuse(fmt.Errorf("execute %s: %w", order.Program, execute(order.Program, order.Args, order.Env)))
}

// awaitLaunch gives a launcher its order and waits until it has become the worker's program. It returns what the launcher said of the
// limits in force.
func awaitLaunch(link io.ReadWriter, order launchOrder) (launchReply, error) {
	var reply launchReply
	// Exactly one value, with nothing behind it: a socket that closes on unread bytes resets the connection.
	text, err := json.Marshal(order)
	if err == nil {
		_, err = link.Write(text)
	}
	if err != nil {
		return reply, fmt.Errorf("tell the launcher what to run: %w", err)
	}
	answers := json.NewDecoder(link)
	if err := answers.Decode(&reply); err != nil {
		return reply, fmt.Errorf("the launcher ended before the program ran: %w", err)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("%s", reply.Error)
	}
	var failure launchReply
	switch err := answers.Decode(&failure); {
	case err == io.EOF: // its socket closed as it executed the program
		return reply, nil
	case err != nil:
		return reply, fmt.Errorf("wait for the program to run: %w", err)
	}
	return reply, fmt.Errorf("%s", failure.Error)
}
