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

// pollerRetention is how long Temporal goes on naming a poller after its last poll began, for as long as a poll may last.
const pollerRetention = 75 * time.Second

// identity is how this agent is known to Temporal: agent@<host id>/<machine>/<pid>. Another agent of the same host id tells from
// it whether the process that polls is alive.
func identity(hostID string) string {
	return fmt.Sprintf("agent@%s/%s/%d", hostID, machine(), os.Getpid())
}

// machine is the same for all processes of one boot of one machine.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname() // without a boot ID the host's name has to do
		boot = []byte(name)
	}
	sum := sha256.Sum256(boot)
	return hex.EncodeToString(sum[:6])
}

// otherAgent names the live agent that polls this host's task queue, or "". A poller on this machine whose process is gone does
// not count; one on another machine counts until Temporal has not heard of it for pollerRetention.
func otherAgent(ctx context.Context, c client.Client, hostID string) (string, error) {
	answer, err := c.DescribeTaskQueue(ctx, api.HostQueue(hostID), enums.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return "", fmt.Errorf("ask Temporal who polls %s: %w", api.HostQueue(hostID), err)
	}
	for _, poller := range answer.GetPollers() {
		who := poller.GetIdentity()
		if who != identity(hostID) && time.Since(poller.GetLastAccessTime().AsTime()) < pollerRetention && !hasExited(who) {
			return who, nil
		}
	}
	return "", nil
}

// hasExited reports whether an identity is of a process of this machine that has ended.
func hasExited(who string) bool {
	parts := strings.Split(who, "/")
	if len(parts) != 3 || parts[1] != machine() {
		return false
	}
	pid, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil {
		return false
	}
	alive, err := process.PidExists(int32(pid))
	return err == nil && !alive
}

// awaitHostID waits until no other agent lives under this host id, and fails if one still does after patience.
func awaitHostID(ctx context.Context, c client.Client, config Config) error {
	ctx, cancel := context.WithTimeout(ctx, config.HostIDTimeout)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	told := false
	for {
		other, err := otherAgent(ctx, c, config.HostID)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if other == "" && err == nil {
			return nil
		}
		if parts := strings.Split(other, "/"); len(parts) == 3 && parts[1] == machine() {
			return fmt.Errorf("an agent with host id %q runs on this machine already (PID %s); stop it, or %s", config.HostID, parts[2], config.OtherHostID)
		}
		if !told {
			told = true
			config.Logger.Info("another agent of this host id polled a moment ago; waiting to see whether it lives", "other", other, "host", config.HostID)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another agent with host id %q is alive (%s); stop it, or %s", config.HostID, other, config.OtherHostID)
		case <-ticker.C:
		}
	}
}
