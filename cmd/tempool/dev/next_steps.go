package dev

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.temporal.io/sdk/client"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
)

// showNextSteps shows the user what to look at and what to try while everything runs.
func (s *starter) showNextSteps(ctx context.Context) {
	pool, endpoint, pid := s.spec.Pool.Name, s.agent.Endpoint(), "PID"
	if state, err := s.client.Pool(pool).State(ctx, 0); err == nil && state.PID != 0 {
		pid = fmt.Sprint(state.PID)
	}
	s.line("\nEverything keeps running until Ctrl-C. Look at:")
	if s.server != nil {
		s.line("  the pool       %s", s.workflowURL(api.PoolWorkflowID(pool)))
		s.line("  worker 0       %s", s.workflowURL(api.WorkerWorkflowID(pool, 0)))
	}
	if strings.HasPrefix(endpoint, "http") {
		s.line("  the dashboard  %s/ui", endpoint)
	}
	s.line("  the gateway    %s", endpoint)
	s.line("\nTry next, in another terminal:\n  # list the workers\n  %s ps %s", s.ctl(), pool)
	s.line("  # kill worker 0 and read its history\n  kill -9 %s; sleep 2; %s history %s", pid, s.ctl(),
		api.WorkerName(pool, 0))
	if s.library != nil && s.options.Security == (gateway.Security{}) && strings.HasPrefix(endpoint, "http") {
		s.line("  # call a worker\n  curl -s %s/v1/pools/%s/call/measure -d '{\"paths\": [\"%s\"]}'", endpoint, pool,
			filepath.Join(s.library.Folder, "ast.py"))
		return
	}
	s.line("  # have one more worker\n  %s pool scale %s %d", s.ctl(), pool, s.spec.Pool.Size+1)
}

// ctl returns the command line that runs tempool for this server.
func (s *starter) ctl() string {
	command, address, namespace := "tempool", s.temporal.Address, s.client.Namespace()
	if !slices.Contains([]string{client.DefaultNamespace, os.Getenv("TEMPORAL_NAMESPACE")}, namespace) {
		command = "TEMPORAL_NAMESPACE=" + namespace + " " + command
	}
	if !slices.Contains([]string{client.DefaultHostPort, "127.0.0.1:7233", os.Getenv("TEMPORAL_ADDRESS")}, address) {
		command = "TEMPORAL_ADDRESS=" + address + " " + command
	}
	return command
}

// workflowURL returns a workflow's page in the Web UI.
func (s *starter) workflowURL(id string) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", s.server.UIURL(), url.PathEscape(s.client.Namespace()),
		url.PathEscape(id))
}
