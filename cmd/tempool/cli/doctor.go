package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/internal/sleep"
)

// maxFindingRunes bounds the text of a finding, which may quote an error.
const maxFindingRunes = 400

// codeProblems is the failure of tempool doctor that has found problems.
const codeProblems api.Code = "problems"

func (a *app) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check a set-up and suggest a fix for each finding",
		Long: `Check a set-up: Temporal, its namespace and search attributes; the agents, their versions, clocks,
limits, disks and gateways; the pools and their workers. Each finding suggests a fix.

problem   something does not work, or soon will not; the exit code is 1
warning   it works, but not as well as it could
note      for information

Agents report on their hosts with their heartbeats. tempool checks gateways from this machine, with the token and the
certificates that tempool call would use.`,
		Example: `  tempool doctor
  tempool doctor -o json | jq -r '.findings[] | select(.level == "problem") | .action'`,
	}
	a.credentialFlags(c) // all gateways are checked
	return a.localCommand(c, func(ctx context.Context, _ []string) error {
		facts := a.examine(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result := newDoctorResult(diagnose(facts))
		if err := a.printResult(result, func(text *strings.Builder) { writeFindings(text, result) }); err != nil {
			return err
		}
		if result.Problems > 0 {
			return api.Errorf(codeProblems, "found %s", plural(result.Problems, "problem"))
		}
		return nil
	})
}

// setup are the facts of a set-up.
type setup struct {
	now       time.Time
	version   string // of tempool
	hostname  string
	namespace string
	dialErr   error
	server    tempool.Server
	serverErr error
	missing   []string // search attributes
	attrErr   error
	hosts     []hostFacts
	hostsErr  error
	pools     []poolFacts
	poolsErr  error
}

// poolFacts are a pool as the hosts reported, and its workers out of service as they answer themselves.
type poolFacts struct {
	api.PoolWorkers
	err error
}

// concurrentExaminations bounds how many hosts are examined concurrently.
const concurrentExaminations = 16

// examine collects the facts. What cannot be found out is an error among them.
func (a *app) examine(ctx context.Context) setup {
	s := setup{now: a.now(), version: buildinfo.Read().String()}
	s.hostname, _ = os.Hostname() // a machine without a name has no other that is called like it
	request, cancel := a.request(ctx)
	defer cancel()
	cp, err := a.dial(request, a.options)
	if err != nil {
		s.dialErr = err
		return s
	}
	defer cp.Close()
	s.namespace = cp.Namespace()
	if s.server, s.serverErr = send(ctx, a, cp.Server); s.serverErr != nil {
		return s
	}
	s.missing, s.attrErr = send(ctx, a, cp.MissingSearchAttributes)
	s.hosts, s.hostsErr = a.hosts(ctx, cp)
	sleep.Each(len(s.hosts), concurrentExaminations, func(i int) {
		if agent := s.hosts[i].Heartbeat.Agent; agent != nil {
			request, cancel := a.request(ctx)
			defer cancel()
			s.hosts[i].gateway = cp.CheckGateway(request, agent.Endpoint)
		}
	})
	var reports tempool.Reports
	for _, h := range s.hosts {
		reports.Add(h.ID, h.Heartbeat)
	}
	s.pools, s.poolsErr = allPools(ctx, a, cp, concurrentQueries, func(p pool, ctx context.Context) (poolFacts, error) {
		status, err := p.Running(ctx)
		status.Pool = p.Name()
		return poolFacts{tempool.RosterOf(status, reports), err}, nil
	})
	views := make([]api.PoolWorkers, len(s.pools)) // share the workers of s
	for i, p := range s.pools {
		views[i] = p.PoolWorkers
	}
	tempool.AskOutOfService(ctx, views, stateOf(cp))
	return s
}

// doctorResult is the result of tempool doctor.
type doctorResult struct {
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`
	Findings []finding `json:"findings"`
}

func newDoctorResult(findings []finding) doctorResult {
	r := doctorResult{Findings: append([]finding{}, findings...)}
	for _, f := range findings {
		switch f.Level {
		case levelProblem:
			r.Problems++
		case levelWarning:
			r.Warnings++
		}
	}
	return r
}

func writeFindings(text *strings.Builder, r doctorResult) {
	for _, f := range r.Findings {
		fmt.Fprintf(text, "%-8s %s: %s\n", f.Level, f.Subject, oneLine(f.Message, maxFindingRunes))
		if f.Action != "" {
			fmt.Fprintf(text, "         → %s\n", f.Action)
		}
		if len(f.Runbooks) > 0 && f.Level != levelNote {
			fmt.Fprintf(text, "         see %s\n", strings.Join(f.Runbooks, " "))
		}
	}
	fmt.Fprintf(text, "%s, %s\n", plural(r.Problems, "problem"), plural(r.Warnings, "warning"))
}
