package ui

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
)

const (
	// samplesTimeout bounds the question for samples: a page does not wait longer for its plots.
	samplesTimeout = 1500 * time.Millisecond
	// sparkWidth and sparkHeight are the size of a plot in a table, chartWidth and chartHeight that of a chart.
	sparkWidth, sparkHeight = 80, 20
	chartWidth, chartHeight = 300, 80
)

// series are the samples of a worker, oldest first.
type series struct{ memory, cpu, calls, score []point }

// samples asks gateways for the samples of some workers of a pool, by name, and says why some are missing; nil asks all
// gateways.
func (v *visit) samples(ctx context.Context, pool string, slots []int,
	gateways []string) (of map[string]series, missing string) {
	all, missing := askForPlots(ctx, v, "samples", gateways,
		func(ctx context.Context, asked tempool.GatewayOptions) ([]api.RecentSamples, error) {
			return v.pool(pool).RecentSamples(ctx, tempool.SampleOptions{GatewayOptions: asked, Workers: slots})
		})
	return seriesOf(all, time.Now()), missing
}

// askForPlots asks gateways for what plots show, and says why some of it is missing; "" if nothing is.
func askForPlots[T any](ctx context.Context, v *visit, what string, gateways []string,
	ask func(ctx context.Context, asked tempool.GatewayOptions) ([]T, error)) (all []T, missing string) {
	ctx, cancel := context.WithTimeout(ctx, samplesTimeout)
	defer cancel()
	var failed []string
	var unreachable error
	all, err := ask(v.remote(ctx), tempool.GatewayOptions{Gateways: gateways,
		Unreachable: func(endpoint string, err error) { failed, unreachable = append(failed, endpoint), err }})
	switch {
	case unreachable != nil:
		slices.Sort(failed)
		silent := failed[0]
		if n := len(failed) - 1; n > 0 {
			silent += " and " + format.Plural(n, "other gateway")
		}
		missing = "The plots do not include the " + what + " of " + silent + ": " + samplesTrouble(unreachable) + "."
	case err != nil:
		missing = "The " + what + " cannot be read: " + samplesTrouble(err) + "."
	}
	return all, missing
}

func samplesTrouble(err error) string {
	switch code := api.CodeOf(err); {
	case code == api.CodeUnauthorized, code == api.CodeForbidden:
		return "its gateway asks for a token; sign out, and sign in with a token that it knows"
	case code == api.CodeDeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return "it does not answer in time"
	}
	return message(err)
}

// seriesOf joins the samples of each worker on all hosts.
func seriesOf(all []api.RecentSamples, now time.Time) map[string]series {
	of := make(map[string]series, len(all))
	for _, one := range all {
		s, before := of[one.Worker]
		for _, points := range []*[]point{&s.memory, &s.cpu, &s.calls, &s.score} {
			*points = slices.Grow(*points, len(one.AgeMS))
		}
		for i, age := range one.AgeMS {
			at, incarnation := now.Add(-time.Duration(age)*time.Millisecond), one.Incarnation[i]
			s.memory = append(s.memory, point{at, incarnation, float64(one.MemoryBytes[i])})
			s.cpu = append(s.cpu, point{at, incarnation, float64(one.CPUPercent[i])})
			s.calls = append(s.calls, point{at, incarnation, float64(one.CallsPerMinute[i])})
			s.score = append(s.score, point{at, incarnation, float64(one.Score[i])})
		}
		if before { // it was on another host
			for _, points := range [][]point{s.memory, s.cpu, s.calls, s.score} {
				slices.SortStableFunc(points, func(a, b point) int { return a.at.Compare(b.at) })
			}
		}
		of[one.Worker] = s
	}
	return of
}

// sparks are the plots of a roster's page, the memory and the calls a minute by worker, and why some are missing. They
// are rendered, which is a third of what the page takes.
type sparks struct {
	of      map[string][2]template.HTML
	missing string
}

// sparks draws the plots of some workers of a pool. Visitors for whom the same question is asked, and the refreshes of
// their pages, share the answer.
func (v *visit) sparks(pool string, slots []int, gateways []string) sparks {
	question := fmt.Sprintf("%s %v %v %+v", pool, slots, gateways, v.access())
	return v.d.memos.sparks.of(question).get(v.ctx(), sparksFreshFor, samplesTimeout,
		func(ctx context.Context) (sparks, error) {
			found, missing := v.samples(ctx, pool, slots, gateways)
			drawn := sparks{make(map[string][2]template.HTML, len(found)), missing}
			last := minutesUntil(time.Now())
			draw := func(points []point, axis axis, what string, text func(float64) string) template.HTML {
				var svg strings.Builder // which takes everything, and the template fits each plot
				_ = v.d.pages["pool"].ExecuteTemplate(&svg, "spark",
					newPlot(points, last, axis, sparkWidth, sparkHeight, what, text))
				return template.HTML(svg.String()) // which the template escaped
			}
			for name, s := range found {
				memory, calls := last.recent(s.memory), last.recent(s.calls)
				drawn.of[name] = [2]template.HTML{draw(memory, sparkAxis(memory), "memory", bytesText),
					draw(calls, zeroAxis(calls, 1, decimal), "calls a minute", countText)}
			}
			return drawn, nil
		}).value
}

// charts are the plots of a worker's page. maxMemory is where it is rotated; 0 is not known.
func charts(s series, maxMemory int64, now time.Time) []plot {
	last := minutesUntil(now)
	draw := func(points []point, what string, least float64, steps []float64, text func(float64) string,
		limit float64) plot {
		points = last.recent(points)
		if _, high := bounds(points); limit > 0 && high > limit/4 {
			least = max(least, limit) // it is near enough to be shown
		}
		axis := zeroAxis(points, least, steps)
		return newPlot(points, last, axis, chartWidth, chartHeight, what, text).withLimit(limit, axis)
	}
	all := []plot{
		draw(s.memory, "memory", 1<<20, binary, bytesText, float64(maxMemory)),
		draw(s.cpu, "CPU", 10, decimal, percentText, 0),
		draw(s.calls, "calls a minute", 1, decimal, countText, 0),
		draw(s.score, "health score", 100, decimal, countText, 0),
	}
	if all[0].D == "" {
		return nil
	}
	return all
}

func bytesText(x float64) string   { return format.Bytes(int64(x)) }
func percentText(x float64) string { return countText(x) + " %" }
func countText(x float64) string   { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

// gatewaysOf are the workers of a page of a roster, and the gateways of their hosts.
func gatewaysOf(rows []workerRow) (slots []int, gateways []string) {
	for _, row := range rows {
		slots = append(slots, row.Entry.Slot)
		if row.Endpoint != "" && !slices.Contains(gateways, row.Endpoint) {
			gateways = append(gateways, row.Endpoint)
		}
	}
	return slots, gateways
}

// queueGateways are the gateways at which calls and clients of a pool wait: those of the hosts of its workers, and
// those that report that some wait.
func queueGateways(status api.PoolStatus, hosts []host) []string {
	gateways := status.Endpoints()
	for _, host := range hosts {
		if agent := host.Heartbeat.Agent; agent != nil && host.Heartbeat.Waiting[status.Pool] > 0 {
			gateways = append(gateways, agent.Endpoint)
		}
	}
	slices.Sort(gateways)
	return slices.DeleteFunc(slices.Compact(gateways), func(endpoint string) bool { return endpoint == "" })
}

// hour asks these gateways for the figures of a pool, and says why some of them are missing.
func (v *visit) hour(pool string, gateways []string) (hour *hourView, missing string) {
	if len(gateways) == 0 {
		return nil, ""
	}
	all, missing := askForPlots(v.ctx(), v, "queue", gateways, v.pool(pool).RecentQueue)
	return newHourView(all, time.Now()), missing
}
