package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
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
		result := a.diagnose(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.printResult(result, func(text *strings.Builder) { writeFindings(text, result) }); err != nil {
			return err
		}
		if result.Problems > 0 {
			return api.Errorf(codeProblems, "found %s", plural(result.Problems, "problem"))
		}
		return nil
	})
}

// concurrentExaminations bounds how many hosts are examined concurrently.
const concurrentExaminations = 16

// diagnose checks a set-up. What cannot be found out is a finding, too.
func (a *app) diagnose(ctx context.Context) *doctorResult {
	d := &doctorResult{Findings: []finding{}}
	request, cancel := a.request(ctx)
	defer cancel()
	cp, err := a.dial(request, a.options)
	if err != nil {
		d.add(levelProblem, "temporal", "Temporal", "start the server, or name it with --address or TEMPORAL_ADDRESS", "%s",
			message(err))
		return d
	}
	defer cp.Close()
	server, err := send(ctx, a, cp.Server)
	if !d.server(cp.Namespace(), server, err) {
		return d
	}
	missing, err := send(ctx, a, cp.MissingSearchAttributes)
	d.searchAttributes(missing, err)
	hosts, err := a.hosts(ctx, cp)
	d.agents(cp.Namespace(), hosts, err)
	gateways := make([]tempool.GatewayCheck, len(hosts))
	sleep.Each(len(hosts), concurrentExaminations, func(i int) {
		if agent := hosts[i].Heartbeat.Agent; agent != nil {
			request, cancel := a.request(ctx)
			defer cancel()
			gateways[i] = cp.CheckGateway(request, agent.Endpoint)
		}
	})
	var reports tempool.Reports
	for i, h := range hosts {
		reports.Add(h.ID, h.Heartbeat)
		if h.Heartbeat.Agent != nil {
			d.clock(h, gateways[i])
			d.limits(h)
			d.disk(h)
			d.gateway(h, gateways[i], a.now())
		}
	}
	pools, err := allPools(ctx, a, cp, concurrentQueries, func(p pool, ctx context.Context) (poolFacts, error) {
		status, err := p.Running(ctx)
		status.Pool = p.Name()
		return poolFacts{tempool.RosterOf(status, reports), err}, nil
	})
	views := make([]api.PoolWorkers, len(pools)) // share the workers of pools
	for i, p := range pools {
		views[i] = p.PoolWorkers
	}
	tempool.AskOutOfService(ctx, views, stateOf(cp))
	d.placement(hosts, pools, err, a.now())
	return d
}

// poolFacts are a pool as the hosts reported, and its workers out of service as they answer themselves.
type poolFacts struct {
	api.PoolWorkers
	err error
}

// doctorResult is the result of tempool doctor.
type doctorResult struct {
	Problems int       `json:"problems"`
	Warnings int       `json:"warnings"`
	Findings []finding `json:"findings"`
}

func writeFindings(text *strings.Builder, r *doctorResult) {
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
