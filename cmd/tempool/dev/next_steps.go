package dev

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway"
)

// showNextSteps shows the user what to look at and what to try while everything runs.
func (s *starter) showNextSteps(ctx context.Context) {
	examples := s.examples(ctx)
	s.screen.line("\nEverything keeps running until Ctrl-C. Look at:")
	for _, link := range s.links() {
		s.screen.line("  %-14s %s", link.name, link.url)
	}
	s.screen.line("\nTry next, in another terminal:")
	for _, e := range examples {
		s.screen.line("  # %s\n  %s", e.purpose, e.command)
	}
}

type link struct{ name, url string }

func (s *starter) links() []link {
	pool := s.spec.Pool.Name
	var links []link
	if s.server != nil {
		links = append(links, link{"the pool", s.workflowURL(api.PoolWorkflowID(pool))},
			link{"worker 0", s.workflowURL(api.WorkerWorkflowID(pool, 0))})
	}
	if endpoint := s.agent.Endpoint(); strings.HasPrefix(endpoint, "http") {
		links = append(links, link{"the dashboard", endpoint + "/ui"})
	}
	return append(links, link{"the gateway", s.agent.Endpoint()})
}

type example struct{ purpose, command string }

func (s *starter) examples(ctx context.Context) []example {
	pool := s.spec.Pool.Name
	pid := "PID"
	if state, err := s.client.Pool(pool).State(ctx, 0); err == nil && state.PID != 0 {
		pid = fmt.Sprint(state.PID)
	}
	examples := []example{
		{"list the workers", s.ctl() + " ps " + pool},
		{"kill worker 0 and read its history",
			fmt.Sprintf("kill -9 %s; sleep 2; %s history %s", pid, s.ctl(), api.WorkerName(pool, 0))},
	}
	if s.library != nil && s.options.Security == (gateway.Security{}) && strings.HasPrefix(s.agent.Endpoint(), "http") {
		return append(examples, example{"call a worker",
			fmt.Sprintf(`curl -s %s/v1/pools/%s/call/measure -d '{"paths": ["%s"]}'`,
				s.agent.Endpoint(), pool, filepath.Join(s.library.Folder, "ast.py"))})
	}
	return append(examples, example{"remove one worker",
		fmt.Sprintf("%s pool scale %s %d", s.ctl(), pool, max(1, s.spec.Pool.Size-1))})
}

// workflowURL returns a workflow's page in the Web UI.
func (s *starter) workflowURL(id string) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", s.server.UIURL(), url.PathEscape(s.client.Namespace()),
		url.PathEscape(id))
}
