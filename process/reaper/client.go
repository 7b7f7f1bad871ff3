package reaper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/reexec"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
)

const (
	// writeTimeout bounds one command; a reaper that does not read it is replaced.
	writeTimeout = 2 * time.Second
	// restartDelay is the wait before a reaper that exited is restarted. It doubles up to maxRestartDelay while restarts
	// fail.
	restartDelay    = 50 * time.Millisecond
	maxRestartDelay = 5 * time.Second
)

// Client is the agent's end of the reaper. It restarts a reaper that exits and sends the new one everything to watch,
// until the agent hands its processes over.
type Client struct {
	hostID string
	logger *slog.Logger
	stop   chan struct{}   // closed by Close and Leave
	done   <-chan struct{} // closed when supervise has returned

	mu       sync.Mutex
	watched  map[string]tree.Key
	commands *os.File  // nil while no reaper runs
	cmd      *exec.Cmd // the running reaper
	lent     bool      // Pipe has been called
}

// Start returns when the first reaper is ready.
func Start(ctx context.Context, hostID string, logger *slog.Logger) (*Client, error) {
	c := &Client{hostID: hostID, logger: logger, watched: make(map[string]tree.Key), stop: make(chan struct{})}
	cmd, err := c.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	c.done = sleep.Done(func() { c.supervise(cmd) })
	return c, nil
}

// start runs a reaper and sends it all trees to watch.
func (c *Client) start(ctx context.Context) (*exec.Cmd, error) {
	commands, cmd, err := reexec.Start(ctx, []string{Name, c.hostID}, nil, nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands, c.cmd = commands, cmd
	if sleep.Ended(c.stop) { // Close or Leave came first; without its pipe a reaper that watches nothing exits
		commands.Close()
		return cmd, nil
	}
	for _, key := range c.watched {
		c.sendLocked(command{Op: opWatch, Key: key})
	}
	return cmd, nil
}

// supervise restarts a reaper that exits, until Close or Pipe: the new one, whose pipe the keeper would not have, would
// kill what the keeper holds when this program ends.
func (c *Client) supervise(cmd *exec.Cmd) {
	for {
		err := tree.WaitChild(cmd)
		c.mu.Lock()
		c.commands.Close()
		c.commands, c.cmd = nil, nil
		lent := c.lent
		c.mu.Unlock()
		if sleep.Ended(c.stop) {
			return
		}
		if lent {
			c.logger.Warn("reaper exited during the hand-over; if the agent is killed now, its other subprocesses survive "+
				"until its next start", "error", err)
			return
		}
		c.logger.Warn("reaper exited; restarting it", "error", err)
		cmd = nil
		for delay := restartDelay; cmd == nil; delay = min(2*delay, maxRestartDelay) {
			if !sleep.For(c.stop, delay) {
				return
			}
			if cmd, err = c.start(context.Background()); err != nil {
				c.logger.Error("no reaper is running; if the agent is killed now, its subprocesses survive until its next start",
					"error", err)
			}
		}
	}
}

// PID returns the PID of the running reaper, 0 if none runs.
func (c *Client) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// Watch makes the reaper kill the tree if the agent dies. A further Watch for the same cookie replaces the key.
func (c *Client) Watch(key tree.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched[key.Cookie] = key
	c.sendLocked(command{Op: opWatch, Key: key})
}

// Forget undoes Watch.
func (c *Client) Forget(cookie string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watched, cookie)
	c.sendLocked(command{Op: opForget, Key: tree.Key{Cookie: cookie}})
}

// sendLocked kills a reaper that does not take the command; its replacement, if any, gets everything to watch.
func (c *Client) sendLocked(command command) {
	if c.commands == nil {
		return
	}
	line, err := json.Marshal(command)
	if err == nil {
		_ = c.commands.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err = c.commands.Write(append(line, '\n'))
	}
	if err != nil {
		c.logger.Warn("reaper does not read its commands; killing it", "error", err)
		_ = c.cmd.Process.Kill()
	}
}

// Pipe returns a descriptor of the reaper's pipe: while it is open, the reaper kills nothing. If the reaper exits after
// that, none takes its place.
func (c *Client) Pipe() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.commands == nil {
		return nil, errors.New("no reaper is running")
	}
	c.lent = true
	return wire.Duplicate(c.commands)
}

// Leave leaves the reaper to the holder of Pipe. Nothing may be watched or forgotten any more.
func (c *Client) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.stop)
	if c.commands != nil {
		c.commands.Close()
	}
}

// Close dismisses the reaper and returns when it has exited.
func (c *Client) Close() {
	c.mu.Lock()
	close(c.stop)
	c.sendLocked(command{Op: opDismiss})
	c.mu.Unlock()
	if !sleep.For(c.done, writeTimeout) {
		return
	}
	c.mu.Lock()
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
	}
	c.mu.Unlock()
	<-c.done
}
