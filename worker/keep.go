package worker

import (
	"context"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
)

// With Config.KeepProcesses an agent that stops leaves its ready processes to the next one of its host id and state
// folder:
//
//  1. It takes no new work, and lets the calls in flight end.
//  2. It hands the processes to a keeper, which holds their descriptors for process.KeepFor, and leaves the host's
//     workflow, which waits as long.
//  3. The next agent takes them over from the keeper and joins the workflow, which notifies their workers of the new
//     epoch.
//  4. Each worker claims its process with its next Watch. What nobody claims is killed.

// takeOver takes over the processes of the previous agent, before this agent is visible to anyone. The gateway opens
// first: the workers learn where it listens. takeOver reports whether it has opened it.
func (a *Agent) takeOver() (serving bool, err error) {
	kept := a.processes.TakenOver()
	if len(kept) == 0 {
		return false, nil
	}
	for _, k := range kept {
		if err := a.host.Resume(k); err != nil {
			a.log.Warn("cannot resume a process that was taken over; killing it", "worker", k.Worker(), "error", err)
			k.Kill(err.Error())
			continue
		}
		a.processReady(k.Process)
		a.membership.request.Kept = append(a.membership.request.Kept,
			api.Process{Worker: k.Worker(), Incarnation: k.Incarnation()})
	}
	if err := a.gateway.Start(); err != nil {
		return false, err
	}
	a.membership.request.Endpoint = a.gateway.Endpoint()
	return true, nil
}

// handOver leaves the ready processes to the next agent, and returns them. The host has released them, and the gateway
// is closed.
func (a *Agent) handOver() []api.Process {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	handed, err := a.processes.HandOver(ctx, a.host.Note)
	if err != nil {
		a.log.Error("cannot keep the processes for the next agent; killing them", "error", err)
	}
	var kept []api.Process
	for _, p := range handed {
		kept = append(kept, api.Process{Worker: p.Worker(), Incarnation: p.Incarnation()})
	}
	if len(kept) > 0 {
		a.log.Info("the next agent can take over the processes", "processes", len(kept), "within", process.KeepFor)
	}
	return kept
}
