package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process"
)

const (
	// joinTimeout is how long a start waits for an earlier agent of this host id to be lost, which takes longer when
	// Temporal was away or slow at the time.
	joinTimeout = api.HostHeartbeatTimeout + api.HostOutageGrace + 8*time.Second
	// joinInterval is the time between two attempts to join. joinAttempt bounds the first one, and the request to leave;
	// see longerAttempt.
	joinInterval = time.Second
	joinAttempt  = 5 * time.Second
	// checkInterval is the time between two checks whether Temporal answers, and checkTimeout bounds one.
	checkInterval = 2 * time.Second
	checkTimeout  = 2 * time.Second
)

// joinLimit is how long a start waits for the host's workflow to answer: as long as that one waits for an agent with
// kept processes, which end with it. Temporal gives it no task for a while after those that an agent without the
// payload keys has failed.
const joinLimit = process.KeepFor

// membership owns this agent's host id: it joins the host's workflow, serves the task queue of its epoch with the
// liveness activity in it, and joins again when that activity has ended. If another agent has taken the id, the agent
// fails.
type membership struct {
	client *tempool.Client
	// to the host's workflow
	announce  func(ctx context.Context, hostID string, request api.JoinRequest) (api.JoinResult, error)
	hostID    string
	hint      string                              // what to do about a taken host id, after "stop that agent, or "
	newWorker func(queue string) sdkworker.Worker // of an epoch, with the activities on processes
	report    func() api.HostHeartbeat            // of each heartbeat
	drain     func(draining bool)                 // keeps starts of workers from this host
	remember  func(epoch int64)                   // for the next agent on this state folder
	// a later epoch has begun: kills the processes of the earlier one, which count as lost
	lost    func()
	fail    func(error) // ends the agent
	log     *slog.Logger
	ended   chan struct{} // a liveness activity has ended
	running sync.WaitGroup
	stop    context.CancelFunc // of run; nil before the first join

	mu        sync.Mutex
	request   api.JoinRequest
	worker    sdkworker.Worker // polls the queue of the present epoch
	heartbeat time.Time        // the newest
	living    int              // liveness activities in progress: one, except for short overlaps
}

// machine names this agent's process to people.
func machine() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown host"
	}
	return fmt.Sprintf("PID %d on %s", os.Getpid(), name)
}

// start joins the host's workflow and stays a member until leave. While another agent holds the id it tries again, for
// that one may be dead and not yet lost.
func (m *membership) start(ctx context.Context) error {
	m.ended = make(chan struct{}, 1)
	if err := m.joinFirst(ctx); err != nil {
		return err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.running.Go(func() { m.run(life) })
	return nil
}

func (m *membership) joinFirst(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, joinLimit)
	defer cancel()
	var taken error
	waiting := false
	for limit := joinAttempt; ; limit = longerAttempt(limit) {
		err := m.join(ctx, limit)
		if err == nil || api.CodeOf(err) == api.CodeInvalid {
			return err
		}
		if errors.Is(err, api.ErrHostTaken) {
			if taken == nil {
				m.log.Info("another agent holds this host id; waiting until it is lost", "error", err)
			}
			taken = err
		} else if !waiting {
			waiting = true
			m.log.Warn("cannot join the host's workflow yet; trying again", "limit", joinLimit, "error", err)
		}
		if !sleep.For(ctx.Done(), joinInterval) || taken != nil && time.Since(began) >= joinTimeout {
			if taken == nil {
				return err
			}
			return fmt.Errorf("%w; stop that agent, or %s", taken, m.hint) // an attempt that was cut short says less
		}
	}
}

// longerAttempt bounds the attempt to join after one that was cut short: its answer may have been slow, not lost.
func longerAttempt(limit time.Duration) time.Duration { return min(2*limit, 4*joinAttempt) }

// join announces this agent once and has the liveness of its epoch served.
func (m *membership) join(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m.mu.Lock()
	request := m.request
	m.mu.Unlock()
	result, err := m.announce(ctx, m.hostID, request)
	if err != nil {
		return err
	}
	m.drain(result.Draining)
	m.mu.Lock()
	m.request.Kept = nil // a later epoch of this agent inherits nothing
	previous, same := m.worker, result.Epoch == m.request.Epoch
	m.mu.Unlock()
	if same {
		return nil
	}
	m.remember(result.Epoch)
	if previous != nil { // before anything can start under the new epoch
		m.lost()
	}
	next := m.newWorker(api.HostEpochQueue(m.hostID, result.Epoch))
	next.RegisterActivityWithOptions(m.live, activity.RegisterOptions{Name: api.ActivityHostLiveness})
	next.RegisterActivityWithOptions(func(_ context.Context, draining bool) error {
		m.drain(draining)
		m.log.Info("an operator drains this host, or has ended that", "draining", draining)
		return nil
	}, activity.RegisterOptions{Name: api.ActivityDrainHost})
	if err := next.Start(); err != nil {
		return fmt.Errorf("poll the queue of epoch %d of host %s: %w", result.Epoch, m.hostID, err)
	}
	m.mu.Lock()
	m.worker, m.request.Epoch = next, result.Epoch
	m.mu.Unlock()
	if previous != nil {
		previous.Stop()
	}
	m.log.Info("joined the host", "epoch", result.Epoch, "instance", request.Instance)
	return nil
}

// epoch is the present epoch; 0 before the first join.
func (m *membership) epoch() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.request.Epoch
}

// live is the liveness activity: it heartbeats until it is cancelled or its worker stops.
func (m *membership) live(ctx context.Context, r api.LivenessRequest) error {
	m.count(+1)
	defer m.count(-1)
	began := time.Now()
	ticker := time.NewTicker(api.HostHeartbeatInterval)
	defer ticker.Stop()
	for {
		heartbeat := bounded(m.report())
		heartbeat.At = r.At.Add(time.Since(began))
		activity.RecordHeartbeat(ctx, heartbeat)
		m.mu.Lock()
		m.heartbeat = time.Now()
		m.mu.Unlock()
		select {
		case <-ticker.C:
		case <-activity.GetWorkerStopChannel(ctx):
			return nil
		case <-ctx.Done():
			sleep.Wake(m.ended)
			return ctx.Err()
		}
	}
}

func (m *membership) count(liveness int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.living += liveness
}

// run joins again, until ctx ends: while no liveness activity is running, and at once when Temporal answers after an
// outage, in which this host may have become suspect. One join may not be enough: a liveness whose heartbeat was not
// answered in time ends here before its workflow learns of that, and a join that arrives in between finds the host up
// and changes nothing.
func (m *membership) run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	away, limit := false, joinAttempt
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.ended: // another run of the workflow may have started the next one already; joining again does no harm
		case <-ticker.C:
			if !m.answers(ctx) {
				away = true
				continue
			}
			m.mu.Lock()
			lives := m.living > 0 && time.Since(m.heartbeat) < api.HostHeartbeatTimeout
			m.mu.Unlock()
			if lives && !away {
				continue
			}
		}
		switch err := m.join(ctx, limit); {
		case errors.Is(err, api.ErrHostTaken):
			m.fail(fmt.Errorf("lost the host id to another agent: %w", err))
			return
		case err != nil && ctx.Err() == nil:
			away, limit = true, longerAttempt(limit)
			m.log.Warn("cannot join the host's workflow; retrying", "error", err)
		case err == nil:
			away, limit = false, joinAttempt
		}
	}
}

// answers reports whether Temporal answers.
func (m *membership) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := m.client.Temporal().CheckHealth(ctx, &client.CheckHealthRequest{})
	return err == nil
}

// leave ends the epoch at a shutdown, if Temporal answers, except for the processes that wait for the next agent. It
// completes the request.
func (m *membership) leave(request api.LeaveRequest) {
	if m.stop == nil {
		return
	}
	m.stop()
	m.running.Wait()
	m.mu.Lock()
	worker := m.worker
	request.Epoch = m.request.Epoch
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), joinAttempt)
	defer cancel()
	if len(request.Kept) > 0 {
		request.KeepMS = process.KeepFor.Milliseconds()
	}
	if err := m.client.LeaveHost(ctx, m.hostID, request); err != nil {
		m.log.Warn("could not leave the host's workflow; it will mark this agent lost", "error", err)
	}
	worker.Stop()
	// The end of the liveness wakes the workflow again. If this agent took that task and stopped in the middle of it,
	// the next agent could not join for the ten seconds after which Temporal gives the task to another.
	_, _ = m.client.HostStatus(ctx, m.hostID)
}

// epochFile holds the newest epoch of the agents on a state folder. The host's workflow also knows it, unless it was
// ended from outside while no agent ran: a new one would count from 1 again, and could not distinguish the processes of
// earlier agents from those of this one.
const epochFile = "epoch"

// lastEpoch is the newest epoch of an agent on this state folder, 0 if none is known.
func (a *Agent) lastEpoch() int64 {
	content, err := os.ReadFile(filepath.Join(a.config.StateDir, epochFile))
	if err != nil {
		return 0
	}
	epoch, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || epoch < 0 {
		a.log.Warn("cannot parse the previous agent's epoch", "file", epochFile,
			"content", strconv.Quote(string(content[:min(len(content), 64)])))
		return 0
	}
	return epoch
}

// rememberEpoch keeps an epoch for the next agent on this state folder.
func (a *Agent) rememberEpoch(epoch int64) {
	if err := atomicfile.Write(filepath.Join(a.config.StateDir, epochFile), []byte(strconv.FormatInt(epoch, 10)+"\n"),
		0o600); err != nil {
		a.log.Warn("cannot save the epoch; it is needed only if the host's workflow is ended from outside", "epoch", epoch,
			"error", err)
	}
}
