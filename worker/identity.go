package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v3/process"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
)

// pollerRetention is how long Temporal lists a poller after its last poll began: as long as one poll may take.
const pollerRetention = 75 * time.Second

// identity returns this agent's identity in Temporal: agent@<host id>/<machine>/<pid>. From it another agent with the same host id
// finds out whether the process that polls is alive.
func identity(hostID string) string {
	return fmt.Sprintf("agent@%s/%s/%d", hostID, machine(), os.Getpid())
}

// parseIdentity returns the machine and PID of an identity; false if it is not one of an agent.
func parseIdentity(identity string) (machine, pid string, ok bool) {
	parts := strings.Split(identity, "/")
	if len(parts) != 3 {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// machine is the same for all processes of one boot of one machine.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname() // the best that a system without a boot ID has
		boot = []byte(name)
	}
	sum := sha256.Sum256(boot)
	return hex.EncodeToString(sum[:6])
}

// otherAgent returns the identity of the live agent that polls this host's task queue, or "". A poller on this machine whose process
// has exited is not live; one on another machine is live until pollerRetention after its last poll.
func otherAgent(ctx context.Context, c client.Client, hostID string) (string, error) {
	queue, err := c.DescribeTaskQueue(ctx, api.HostQueue(hostID), enums.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return "", fmt.Errorf("list the pollers of %s: %w", api.HostQueue(hostID), err)
	}
	for _, poller := range queue.GetPollers() {
		other := poller.GetIdentity()
		if other != identity(hostID) && time.Since(poller.GetLastAccessTime().AsTime()) < pollerRetention && !hasExited(other) {
			return other, nil
		}
	}
	return "", nil
}

// hasExited reports whether an identity is that of a process of this machine that has exited.
func hasExited(identity string) bool {
	onMachine, pid, ok := parseIdentity(identity)
	if !ok || onMachine != machine() {
		return false
	}
	number, err := strconv.ParseInt(pid, 10, 32)
	if err != nil {
		return false
	}
	alive, err := process.PidExists(int32(number))
	return err == nil && !alive
}

// awaitHostID waits until no other agent uses this host id, and fails after HostIDTimeout.
func awaitHostID(ctx context.Context, c client.Client, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, config.HostIDTimeout)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for waiting := false; ; waiting = true {
		other, err := otherAgent(ctx, c, config.HostID)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if other == "" && err == nil {
			return nil
		}
		if onMachine, pid, ok := parseIdentity(other); ok && onMachine == machine() {
			return fmt.Errorf("an agent with host id %q runs on this machine already (PID %s); stop it, or %s", config.HostID, pid, config.OtherHostID)
		}
		if !waiting {
			config.Logger.Info("waiting: another agent with this host id polled recently and may be alive", "other", other, "host", config.HostID, "timeout", config.HostIDTimeout)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another agent with host id %q is alive (%s); stop it, or %s", config.HostID, other, config.OtherHostID)
		case <-ticker.C:
		}
	}
}
