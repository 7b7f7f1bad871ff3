package ui

import (
	"context"
	"slices"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// queueGateways are the gateways at which calls and clients of a pool wait: those of the hosts of its workers, and
// those that report that some wait.
func queueGateways(pool string, workers []api.RosterEntry, hosts []host) (gateways []string) {
	for _, w := range workers {
		gateways = append(gateways, w.Endpoint)
	}
	for _, host := range hosts {
		if agent := host.Heartbeat.Agent; agent != nil && host.Heartbeat.Waiting[pool] > 0 {
			gateways = append(gateways, agent.Endpoint)
		}
	}
	slices.Sort(gateways)
	return slices.DeleteFunc(slices.Compact(gateways), func(endpoint string) bool { return endpoint == "" })
}

// queue draws how many calls and clients waited for a worker of a pool at these gateways, and says why some of them are
// missing.
func (v *visit) queue(pool string, gateways []string) (spark plot, missing string) {
	if len(gateways) == 0 {
		return plot{}, ""
	}
	all, missing := askForPlots(v, "queue",
		func(ctx context.Context, unreachable func(string, error)) ([]api.RecentQueue, error) {
			return v.d.config.Fleet.RecentQueue(ctx, pool, tempool.QueueOptions{Gateways: gateways, Unreachable: unreachable})
		})
	end := endOfPlots(time.Now())
	points := queuePoints(all, end)
	what := "calls and clients that waited, most in each ten seconds"
	return newPlot(points, end, zeroAxis(points, 1, decimal), queueWidth, queueHeight, what, countText), missing
}

// queuePoints adds the queues of the gateways up. Their newest intervals count as one, and so on: they began within ten
// seconds, and no clocks of two hosts are compared. So the sum is at least what ever waited at the same time.
func queuePoints(all []api.RecentQueue, end time.Time) (points []point) {
	var sums [plotSpan / plotStep]float64
	var known [len(sums)]bool
	for _, one := range all {
		for i, age := range one.AgeMS {
			if ago := max(0, age) / plotStep.Milliseconds(); ago < int64(len(sums)) {
				sums[ago], known[ago] = sums[ago]+max(0, float64(one.Waiting[i])), true
			}
		}
	}
	for ago := len(sums) - 1; ago >= 0; ago-- {
		if known[ago] {
			points = append(points, point{at: end.Add(-time.Duration(ago) * plotStep), value: sums[ago]})
		}
	}
	return points
}
