//go:build !cluster

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// monthAct is a command or a fault. It returns what it did, for the log; an error is part of life, since the commands
// hit each other's faults.
type monthAct struct {
	name   string
	weight int
	do     func(*month, context.Context) (string, error)
}

// monthActs are all commands and faults.
var monthActs = []monthAct{
	{"suspend", 6, signalAny(api.SignalSuspend)},
	{"resume", 10, signalAny(api.SignalResume)},
	{"stop", 4, signalAny(api.SignalStop)},
	{"drain", 4, func(m *month, ctx context.Context) (string, error) {
		slot := m.slot()
		return fmt.Sprint(slot), m.update(ctx, "month", api.UpdateDrain, "", api.Control{Worker: &slot, Reason: "month"})
	}},
	{"restart", 12, func(m *month, ctx context.Context) (string, error) {
		slot := m.slot()
		_, err := m.pool.Restart(ctx, api.RestartRequest{Worker: &slot, Reason: "month"})
		return fmt.Sprint(slot), err
	}},
	{"restart all", 2, func(m *month, ctx context.Context) (string, error) {
		_, err := m.pool.Restart(ctx, api.RestartRequest{Reason: "month"})
		return "", err
	}},
	{"scale", 5, func(m *month, ctx context.Context) (string, error) {
		size := 2 + m.random.IntN(5)
		_, err := m.pool.Scale(ctx, size)
		return fmt.Sprint(size), err
	}},
	{"apply", 2, func(m *month, ctx context.Context) (string, error) {
		m.spec.Pool.Env["VERSION"] = fmt.Sprint(m.random.IntN(1000))
		_, err := m.pool.Apply(ctx, m.spec)
		return m.spec.Pool.Env["VERSION"], err
	}},
	{"evacuate", 2, func(m *month, ctx context.Context) (string, error) {
		slot := m.slot()
		return fmt.Sprint(slot), m.update(ctx, "month", api.UpdateEvacuate, "", api.EvacuateRequest{Worker: slot})
	}},
	{"rebalance sessions", 1, func(m *month, ctx context.Context) (string, error) {
		_, err := m.pool.RebalanceSessions(ctx, api.RebalanceSessionsRequest{})
		return "", err
	}},
	{"useless signals", 6, func(m *month, ctx context.Context) (string, error) {
		id, n := m.workflow(), m.random.IntN(60)
		for range n {
			if err := m.client.Temporal().SignalWorkflow(ctx, id, "", "useless", nil); err != nil {
				return id, err
			}
		}
		return fmt.Sprintf("%d to %s", n, id), nil
	}},
	{"continue as new", 4, func(m *month, ctx context.Context) (string, error) {
		id := m.workflow()
		return id, m.client.Temporal().SignalWorkflow(ctx, id, "", api.SignalForceContinue, nil)
	}},
	{"kill a process", 10, func(m *month, _ context.Context) (string, error) {
		host := m.hosts[m.random.IntN(2)]
		return fmt.Sprint(host, killRandomWorker(host)), nil
	}},
	{"kill an agent", 1, func(m *month, ctx context.Context) (string, error) {
		host := m.hosts[m.random.IntN(2)]
		m.agents[host].kill()
		pause := time.Duration(m.random.IntN(8)) * time.Second
		wait(ctx, pause)
		m.agents[host] = m.startAgent(host, "--capacity", "8")
		return fmt.Sprintf("%s for %s", host, pause), nil
	}},
	{"stop an agent", 1, func(m *month, ctx context.Context) (string, error) {
		host := m.hosts[m.random.IntN(2)]
		m.agents[host].stop()
		m.agents[host] = m.startAgent(host, "--capacity", "8")
		return host, nil
	}},
	{"freeze an agent", 2, func(m *month, ctx context.Context) (string, error) {
		host, pause := m.hosts[m.random.IntN(2)], time.Duration(m.random.IntN(6))*time.Second
		if err := m.agents[host].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return host, err
		}
		wait(ctx, pause)
		return fmt.Sprintf("%s for %s", host, pause), m.agents[host].cmd.Process.Signal(syscall.SIGCONT)
	}},
	{"kill Temporal", 1, func(m *month, ctx context.Context) (string, error) {
		if err := m.server.Kill(); err != nil {
			return "", err
		}
		<-m.server.Done()
		return "", m.server.Restart(m.t.Context()) // however long it takes: nothing else starts it again
	}},
	{"cancel a worker", 4, func(m *month, ctx context.Context) (string, error) {
		id := api.WorkerWorkflowID("month", m.slot())
		return id, m.client.Temporal().CancelWorkflow(ctx, id, "")
	}},
	{"terminate a worker", 4, func(m *month, ctx context.Context) (string, error) {
		return m.terminate(ctx, api.WorkerWorkflowID("month", m.slot()))
	}},
	{"terminate the pool", 1, func(m *month, ctx context.Context) (string, error) {
		id, err := m.terminate(ctx, api.PoolWorkflowID("month"))
		m.ensurePool()
		return id, err
	}},
	{"cancel the pool", 1, func(m *month, ctx context.Context) (string, error) {
		err := m.client.Temporal().CancelWorkflow(ctx, api.PoolWorkflowID("month"), "")
		if err == nil {
			err = m.pool.Wait(ctx)
		}
		m.ensurePool()
		return "", err
	}},
}

func signalAny(name string) func(*month, context.Context) (string, error) {
	return func(m *month, ctx context.Context) (string, error) {
		slot := m.slot()
		return fmt.Sprint(slot), m.pool.Signal(ctx, slot, name, api.Control{Reason: "month"})
	}
}

// act gives one command or makes one fault.
func (m *month) act() {
	total := 0
	for _, a := range monthActs {
		total += a.weight
	}
	n := m.random.IntN(total)
	for _, a := range monthActs {
		if n -= a.weight; n >= 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		did, err := a.do(m, ctx)
		m.count[a.name]++
		line := fmt.Sprintf("%s %s %s", began.Format("15:04:05.000"), a.name, did)
		if err != nil {
			m.count[a.name+" failed"]++
			line += ": " + err.Error()
		}
		m.log = append(m.log, line)
		if api.CodeOf(err) == api.CodePoolNotFound { // one that was cancelled has ended after the cancellation's deadline
			m.ensurePool()
		}
		return
	}
}

func (m *month) slot() int { return m.random.IntN(monthSize) }

// workflow is the ID of the pool's workflow or of a worker's.
func (m *month) workflow() string {
	if m.random.IntN(3) == 0 {
		return api.PoolWorkflowID("month")
	}
	return api.WorkerWorkflowID("month", m.slot())
}

func (m *month) terminate(ctx context.Context, id string) (string, error) {
	return id, m.client.Temporal().TerminateWorkflow(ctx, id, "", monthReason)
}

// ensurePool starts the pool if it does not run.
func (m *month) ensurePool() {
	require.Eventually(m.t, func() bool {
		err := m.client.StartPool(m.t.Context(), api.PoolStart{Pool: "month", Spec: m.spec})
		return err == nil || api.CodeOf(err) == api.CodePoolExists
	}, waitTimeout, 100*time.Millisecond)
}
