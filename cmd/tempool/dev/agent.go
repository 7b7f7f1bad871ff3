package dev

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/worker"
)

// agentStopTimeout is for pools that other programs started on the agent; its own pool has stopped before.
const agentStopTimeout = 15 * time.Second

// startAgent starts an agent in this process.
func (s *starter) startAgent(ctx context.Context) error {
	listen := s.options.Listen
	if listen == "" {
		listen = worker.DefaultListen
		if !free(listen) {
			s.line("The gateway's default address %s is taken; it gets another port.", listen)
			listen = "127.0.0.1:0"
		}
	} else if !free(listen) {
		return fmt.Errorf("the gateway cannot listen on %s; stop the program that has the port, or set another one with "+
			"--listen", listen)
	}
	var err error
	s.agent, err = worker.Start(ctx, worker.Config{
		Address: s.temporal.Address, Namespace: s.temporal.Namespace, Payloads: s.temporal.Payloads, HostID: hostID(),
		OtherHostID: "use another Temporal server (--address)", StateDir: s.data.agentState(),
		Listen: listen, Security: s.options.Security, Capacity: max(worker.DefaultCapacity, 2*s.spec.Pool.Size),
		Labels: labels(s.spec.Pool.Placement), Logger: s.data.logger,
		StopTimeout: agentStopTimeout,
	})
	if err != nil && s.server != nil {
		return fmt.Errorf("start the agent: %w; if another version of Tempool has used the database, remove %s*", err,
			s.data.database())
	}
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	s.onStop("the agent", agentStopTimeout, func(context.Context) error { return s.agent.Stop() })
	s.line("The agent runs, its gateway at %s, its log in %s.", s.agent.Endpoint(), s.data.log.Name())
	return nil
}

// labels returns the agent's placement labels: the default for further pools, and the pool's own.
func labels(placement string) []string {
	return slices.Compact([]string{api.DefaultPlacement, cmp.Or(placement, api.DefaultPlacement)})
}

var notInHostID = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// hostID returns an ID that is the same at every start on this machine and that no other agent has.
func hostID() string {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	name = notInHostID.ReplaceAllString(name, "-")
	return "starter-" + name[:min(len(name), 100)]
}
