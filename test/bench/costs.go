package main

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// cost is what something costs the control plane.
type cost struct {
	actions     float64 // billable operations, as Temporal's server counts them
	persistence float64 // operations of the server on its database
	events      float64 // of histories
	bytes       float64 // of histories
}

func (c cost) plus(d cost) cost {
	return cost{c.actions + d.actions, c.persistence + d.persistence, c.events + d.events, c.bytes + d.bytes}
}

func (c cost) minus(d cost) cost { return c.plus(d.times(-1)) }

func (c cost) times(f float64) cost {
	return cost{c.actions * f, c.persistence * f, c.events * f, c.bytes * f}
}

// costs reads the server's counters and the length of the histories of workflows; a workflow that does not exist has
// none.
func (b *bench) costs(ctx context.Context, workflows ...string) (c cost) {
	request := must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+"/metrics", nil))
	response := must(http.DefaultClient.Do(request))
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		metric, labels, _ := strings.Cut(name, "{")
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case metric == "action" && strings.Contains(labels, `namespace="`+b.client.Namespace()+`"`):
			c.actions += v
		case metric == "persistence_requests":
			c.persistence += v
		}
	}
	check(lines.Err())
	for _, id := range workflows {
		answer, err := b.client.Temporal().DescribeWorkflowExecution(ctx, id, "")
		if err != nil {
			continue // not started
		}
		info := answer.GetWorkflowExecutionInfo()
		c.events += float64(info.GetHistoryLength())
		c.bytes += float64(info.GetHistorySizeBytes())
	}
	return c
}

// spend returns the cost of what do causes, and the time it took.
func (b *bench) spend(ctx context.Context, do func(), workflows ...string) (cost, time.Duration) {
	before := b.costs(ctx, workflows...)
	began := time.Now()
	do()
	wait(ctx, sizingSettle)
	return b.costs(ctx, workflows...).minus(before), time.Since(began)
}
