package gateway

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

// writes is a worker that prints what the script does and then waits.
func (e *env) writes(slot int, incarnation int64, script string) *process.Process {
	e.t.Helper()
	sp := spec.Default()
	sp.Pool.Name, sp.Pool.Command, sp.Pool.Protocol = "p", []string{"sh", "-c", script +
		"; exec sleep 1000"}, spec.ProtocolNone
	sp.Health.Kind, sp.Health.Command = spec.HealthExec, []string{"true"}
	p, err := e.processes.Start(e.t.Context(),
		process.Launch{Worker: api.WorkerName("p", slot), Incarnation: incarnation, Spec: sp})
	require.NoError(e.t, err)
	e.control.add(api.WorkerName("p", slot), incarnation)
	return p
}

// log reads a route of logs that ends.
func (e *env) log(path string) (lines []api.LogLine) {
	e.t.Helper()
	a := e.ok("GET", path, nil)
	require.Equal(e.t, "application/x-ndjson", a.header.Get("Content-Type"))
	for text := range strings.Lines(string(a.body)) {
		lines = append(lines, decode[api.LogLine](e.t, []byte(text)))
	}
	return lines
}

func programText(lines []api.LogLine) (text []string) {
	for _, l := range lines {
		if l.Stream != "tempool" {
			text = append(text, l.Text)
		}
	}
	return text
}

func TestTheLogOfAWorkerIsServed(t *testing.T) {
	e := parallel(t, 0)
	crashed := e.writes(0, 1, "echo one; echo two; echo 'the last words' >&2")
	require.Eventually(t, func() bool { return len(programText(e.log("/v1/workers/p/0/logs"))) == 3 }, timeout,
		10*time.Millisecond)
	crashed.Kill("test")
	<-crashed.Done()
	e.writes(0, 2, "echo second")
	e.writes(1, 1, "echo of another worker")
	require.Eventually(t, func() bool { return len(programText(e.log("/v1/pools/p/logs"))) == 5 }, timeout,
		10*time.Millisecond)

	all := e.log("/v1/workers/p/0/logs")
	require.Equal(t, "p/0", all[0].Worker)
	require.Equal(t, "here", all[0].Host)
	require.EqualValues(t, 2, all[len(all)-1].Incarnation)
	previous := e.log("/v1/workers/p/0/logs?previous")
	require.ElementsMatch(t, []string{"one", "two", "the last words"}, programText(previous))
	require.Equal(t, "ended: killed: test", previous[len(previous)-1].Text)
	require.Equal(t, "second", e.log("/v1/workers/p/0/logs?tail=1")[0].Text)
	require.Empty(t, e.log("/v1/workers/p/0/logs?tail=0"))
	require.Empty(t, e.log("/v1/workers/p/0/logs?since=2100-01-01T00:00:00Z"))
	require.Equal(t, all, e.log("/v1/workers/p/0/logs?since=1h"))
	require.Empty(t, e.log("/v1/pools/q/logs"))
	for _, wrong := range []string{"tail=-1", "tail=x", "since=yesterday", "since=-5m", "follow=perhaps",
		"follow&previous"} {
		e.do("GET", "/v1/workers/p/0/logs?"+wrong, nil).requireProblem(t, 400, api.CodeInvalid)
	}
	e.do("GET", "/v1/workers/p/9/logs", nil).requireProblem(t, 404, api.CodeWorkerNotFound)
	e.do("GET", "/v1/workers/p/x/logs", nil).requireProblem(t, 404, api.CodeWorkerNotFound)
}

func TestALogThatIsNotFollowedIsCompleteWhileTheGatewayLeaves(t *testing.T) {
	e := parallel(t, 0)
	e.writes(0, 1, "echo one")
	require.Eventually(t, func() bool { return len(programText(e.log("/v1/workers/p/0/logs"))) == 1 }, timeout,
		10*time.Millisecond)
	e.gateway.endLife()
	answer := httptest.NewRecorder()
	require.NotPanics(t, func() {
		require.NoError(t, e.gateway.serveLogs(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil),
			logQuery{tail: -1}, func() ([]string, error) { return slices.Repeat([]string{"p/0"}, 1000), nil }))
	})
	require.Contains(t, answer.Body.String(), `"one"`)
}

func TestALogIsFollowedWhileTheIncarnationChanges(t *testing.T) {
	e := parallel(t, 0)
	first := e.writes(0, 1, "echo one")
	lines := e.lines("GET", "/v1/workers/p/0/logs?follow", "")
	var got []string
	await := func(want string) {
		t.Helper()
		for !slices.Contains(got, want) {
			text, open := lines.line()
			require.True(t, open, "the log ended before %q: %q", want, got)
			if line := decode[api.LogLine](t, []byte(text)); line.Text != "" {
				got = append(got, fmt.Sprintf("%d %s", line.Incarnation, line.Text))
			}
		}
	}
	await("1 one")
	first.Kill("test")
	<-first.Done()
	await("1 ended: killed: test")
	e.writes(0, 2, "echo two")
	await("2 two")
	slices.Sort(got)
	require.Equal(t, len(got), len(slices.Compact(got)), "each line once")

	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, e.gateway.Close(ctx), "a followed log does not delay a gateway that closes")
	for range lines.lines {
	}
}

func TestTheLogOfAWorkerOnAnotherHostIsThere(t *testing.T) {
	e := parallel(t, 0)
	e.writes(0, 1, "echo here")
	p, _ := e.processes.Get("p/0", 1)
	require.Eventually(t, func() bool { return len(programText(e.log("/v1/workers/p/0/logs"))) == 1 }, timeout,
		10*time.Millisecond)
	p.Kill("it moves")
	<-p.Done()
	moved := e.control.add("p/0", 2)
	moved.host, moved.endpoint = "there", "http://there:7460"
	a := e.do("GET", "/v1/workers/p/0/logs", nil)
	a.requireProblem(t, 404, api.CodeWorkerNotFound)
	require.Equal(t, "there", a.problem.Host)
	require.Equal(t, "http://there:7460", a.problem.Endpoint)
	require.Equal(t, []string{"here"}, programText(e.log("/v1/workers/p/0/logs?here=true")))
	require.Equal(t, []string{"here"}, programText(e.log("/v1/workers/p/0/logs?here=true&previous")))
	e.control.setDown(true)
	require.Equal(t, []string{"here"}, programText(e.log("/v1/workers/p/0/logs")))
}
