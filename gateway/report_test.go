package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/events"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

func TestTheReportOfAPoolIsServedToThoseWhoMayReadIt(t *testing.T) {
	t.Parallel()
	e := open(t, 2)
	answer := e.do("GET", "/v1/pools/p/report", nil)
	require.Equal(t, 200, answer.status)
	var report tempool.Report
	require.NoError(t, json.Unmarshal(answer.body, &report))
	require.Equal(t, "p", report.Pool)
	require.Len(t, report.Health, 2)
	require.NotNil(t, report.Health[0].UptimeS)
	e.do("GET", "/v1/pools/q/report", nil).requireProblem(t, 404, api.CodePoolNotFound)
}

func TestNoRouteShowsTheSecretsOfASpec(t *testing.T) {
	t.Parallel()
	e := open(t, 1, option{spec: func(sp *spec.Spec) {
		sp.Pool.Env["BROKER"] = "amqps://s3cret@mq/"
		sp.Pool.Command = append(sp.Pool.Command, "redis://s3cret@db", "--token", "s3cret", "https://h/?key=s3cret")
	}}, withSessions(sessions.Config{}), withCopies(&fakeCopies{}), withEvents(events.New("here")), withSamples())
	asked := 0
	for _, rt := range e.gateway.routes() {
		if rt.method != http.MethodGet {
			continue
		}
		path := strings.NewReplacer("{pool}", "p", "{slot}", "0", "{session}", "s1", "{id}", "s1").Replace(rt.path)
		if path == "/v1/events" {
			path += "?follow=false"
		}
		answer := e.do("GET", path, nil)
		require.NotContains(t, string(answer.body), "s3cret", path)
		if answer.status == http.StatusOK {
			asked++
		}
	}
	require.Greater(t, asked, 10)
}
