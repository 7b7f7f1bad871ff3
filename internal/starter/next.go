package starter

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/tempool/tempool/api"
)

// guide is what the user may look at and try while everything runs.
type guide struct {
	links    [][2]string // what, where
	commands [][2]string // why, what
}

func (s *screen) next(g guide) {
	s.line("\nEverything goes on running until Ctrl-C. Look at:")
	for _, link := range g.links {
		s.line("  %-14s %s", link[0], link[1])
	}
	s.line("\nTry next, in another terminal:")
	for _, command := range g.commands {
		s.line("  # %s\n  %s", command[0], command[1])
	}
}

// next describes what runs now.
func (s *starter) next(ctx context.Context) guide {
	pool := s.spec.Pool.Name
	var g guide
	if s.server != nil {
		g.links = append(g.links,
			[2]string{"the pool", s.workflowURL(api.PoolWorkflowID(pool))},
			[2]string{"worker 0", s.workflowURL(api.WorkerWorkflowID(pool, 0))})
	}
	g.links = append(g.links, [2]string{"the gateway", s.agent.Endpoint()})
	pid := "PID"
	if state, err := s.client.Pool(pool).State(ctx, 0); err == nil && state.PID != 0 {
		pid = fmt.Sprint(state.PID)
	}
	g.commands = [][2]string{
		{"how the workers fare", s.ctl() + " ps " + pool},
		{"kill worker 0, and read what became of it", fmt.Sprintf("kill -9 %s; sleep 2; %s history %s", pid, s.ctl(), api.WorkerName(pool, 0))},
	}
	if s.library != nil && strings.HasPrefix(s.agent.Endpoint(), "http") {
		g.commands = append(g.commands, [2]string{"call a worker", fmt.Sprintf(`curl -s %s/v1/pools/%s/call/measure -d '{"paths": ["%s"]}'`,
			s.agent.Endpoint(), pool, filepath.Join(s.library.Folder, "ast.py"))})
	} else {
		g.commands = append(g.commands, [2]string{"one worker fewer", fmt.Sprintf("%s pool scale %s %d", s.ctl(), pool, max(1, s.spec.Pool.Size-1))})
	}
	return g
}

// workflowURL is a workflow's page in the Web UI.
func (s *starter) workflowURL(id string) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", s.server.UIURL(), url.PathEscape(s.client.Namespace()), url.PathEscape(id))
}

// ctl is how to call ctl from here so that it finds this server.
func (s *starter) ctl() string {
	var words []string
	if address := s.temporal.Address; !isDefaultAddress(address) && os.Getenv("TEMPORAL_ADDRESS") != address {
		words = append(words, "TEMPORAL_ADDRESS="+address)
	}
	if namespace := s.client.Namespace(); namespace != "default" && os.Getenv("TEMPORAL_NAMESPACE") != namespace {
		words = append(words, "TEMPORAL_NAMESPACE="+namespace)
	}
	if _, err := os.Stat(filepath.Join("cmd", "ctl", "main.go")); err == nil {
		return strings.Join(append(words, "go run ./cmd/ctl"), " ")
	}
	return strings.Join(append(words, "ctl"), " ")
}
