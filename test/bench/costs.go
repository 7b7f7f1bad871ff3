package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
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
func (b *bench) costs(ctx context.Context, workflows []string) (c cost, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+"/metrics", nil)
	if err != nil {
		return c, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return c, fmt.Errorf("read the Temporal server's metrics: %w", err)
	}
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
	if err := lines.Err(); err != nil {
		return c, fmt.Errorf("read the Temporal server's metrics: %w", err)
	}
	for _, id := range workflows {
		answer, err := b.client.Temporal().DescribeWorkflowExecution(ctx, id, "")
		if err != nil {
			continue // not started
		}
		info := answer.GetWorkflowExecutionInfo()
		c.events += float64(info.GetHistoryLength())
		c.bytes += float64(info.GetHistorySizeBytes())
	}
	return c, nil
}

// Temporal Cloud's list prices of 2026-11-22 (docs.temporal.io/cloud/pricing, pay as you go, Business plan), in US
// dollars.
var priceTiers = []struct{ actions, price float64 }{ // up to so many actions in a month, each
	{5e6, 50e-6}, {10e6, 45e-6}, {20e6, 40e-6}, {50e6, 35e-6}, {100e6, 30e-6}, {math.Inf(1), 25e-6},
}

const (
	activePrice = 0.042 // per GB and hour of open histories
	monthDays   = 30.0
	monthHours  = monthDays * 24
)

// actionPrice returns the price of a month's actions. The list ends at 200 million; beyond that, it applies the last
// price.
func actionPrice(actions float64) (price float64) {
	below := 0.0
	for _, tier := range priceTiers {
		price += max(0, min(actions, tier.actions)-below) * tier.price
		below = tier.actions
	}
	return price
}
