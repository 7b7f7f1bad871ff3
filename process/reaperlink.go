package process

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// reaperStartTimeout bounds the start of the reaper.
	reaperStartTimeout = 15 * time.Second
	// reaperWriteTimeout bounds one order; a reaper that does not read for so long is replaced.
	reaperWriteTimeout = 2 * time.Second
	// reaperRestartPause is the wait before a reaper that ended is started anew, doubled up to reaperRestartMax while that fails.
	reaperRestartPause = 50 * time.Millisecond
	reaperRestartMax   = 5 * time.Second
)

// reaperLink is the supervisor's end of the reaper: it keeps one running and knows what it must be told.
type reaperLink struct {
	hostID string
	logger *slog.Logger
	stop   chan struct{} // closed by close
	done   chan struct{} // closed when the keeper has ended

	mu      sync.Mutex
	watched map[string]treeKey
	orders  *os.File  // nil while no reaper runs
	cmd     *exec.Cmd // the running one
	pid     int
	closed  bool
}

// openReaperLink returns when the first reaper is ready.
func openReaperLink(ctx context.Context, hostID string, logger *slog.Logger) (*reaperLink, error) {
	if !reaperHooked.Load() {
		return nil, coded(CodeInvalid, nil, "this program cannot start its reaper: make process.RunReaperIfAsked() the first statement of main (and of TestMain)")
	}
	l := &reaperLink{
		hostID: hostID, logger: logger, watched: make(map[string]treeKey),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	go l.keep()
	return l, nil
}

// start runs a reaper and tells it all there is to watch.
func (l *reaperLink) start(ctx context.Context) error {
	exe, err := selfExe()
	if err != nil {
		return fmt.Errorf("start the reaper: %w", err)
	}
	ordersOut, orders, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the reaper: %w", err)
	}
	ready, readyIn, err := os.Pipe()
	if err != nil {
		ordersOut.Close()
		orders.Close()
		return fmt.Errorf("start the reaper: %w", err)
	}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{reaperName, l.hostID},
		Env:        []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		ExtraFiles: []*os.File{ordersOut, readyIn}, SysProcAttr: sessionAttr(nil),
	}
	err = startChild(cmd)
	ordersOut.Close()
	readyIn.Close()
	if err == nil {
		err = awaitReady(ctx, ready)
		if err != nil {
			_ = cmd.Process.Kill()
			_ = waitChild(cmd)
		}
	}
	ready.Close()
	if err != nil {
		orders.Close()
		return fmt.Errorf("start the reaper: %w", err)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders, l.cmd, l.pid = orders, cmd, cmd.Process.Pid
	for _, key := range l.watched {
		l.send(order{Op: opWatch, Key: key})
	}
	return nil
}

func awaitReady(ctx context.Context, ready *os.File) error {
	deadline := time.Now().Add(reaperStartTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := ready.SetReadDeadline(deadline); err != nil {
		return err
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("it did not report ready: %w", err)
	}
	return nil
}

// keep replaces a reaper that ends before its time, until close.
func (l *reaperLink) keep() {
	defer close(l.done)
	for {
		l.mu.Lock()
		cmd := l.cmd
		l.mu.Unlock()
		err := waitChild(cmd)

		l.mu.Lock()
		l.orders.Close()
		l.orders, l.cmd, l.pid = nil, nil, 0
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return
		}
		l.logger.Warn("the reaper ended and is started anew", "error", err)
		if !l.restart() {
			return
		}
	}
}

func (l *reaperLink) restart() bool {
	for pause := reaperRestartPause; ; pause = min(2*pause, reaperRestartMax) {
		select {
		case <-l.stop:
			return false
		case <-time.After(pause):
		}
		err := l.start(context.Background())
		if err == nil {
			return true
		}
		l.logger.Error("no reaper is running: a sudden death of this program would leave subprocesses until its next start", "error", err)
	}
}

// watch tells the reaper to kill the tree if this program dies. It may be called again when more is known about the tree.
func (l *reaperLink) watch(key treeKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched[key.Cookie] = key
	l.send(order{Op: opWatch, Key: key})
}

func (l *reaperLink) forget(cookie string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watched, cookie)
	l.send(order{Op: opForget, Key: treeKey{Cookie: cookie}})
}

// send runs under mu. It need not report failure: a reaper that cannot be told is replaced by one that is told everything.
func (l *reaperLink) send(o order) {
	if l.orders == nil {
		return
	}
	line, err := json.Marshal(o)
	if err == nil {
		_ = l.orders.SetWriteDeadline(time.Now().Add(reaperWriteTimeout))
		_, err = l.orders.Write(append(line, '\n'))
	}
	if err != nil {
		l.logger.Warn("the reaper does not take orders and is replaced", "error", err)
		_ = l.cmd.Process.Kill()
	}
}

// close dismisses the reaper and returns when it has ended.
func (l *reaperLink) close() {
	l.mu.Lock()
	l.closed = true
	close(l.stop)
	l.send(order{Op: opDismiss})
	l.mu.Unlock()
	select {
	case <-l.done:
		return
	case <-time.After(reaperWriteTimeout):
	}
	l.mu.Lock()
	if l.cmd != nil {
		_ = l.cmd.Process.Kill()
	}
	l.mu.Unlock()
	<-l.done
}
