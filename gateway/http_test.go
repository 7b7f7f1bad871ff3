package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

func TestUnknownRouteIsAProblem(t *testing.T) {
	e := parallel(t, 0)
	for _, path := range []string{"/", "/v1", "/v1/pools/p/call", "/v2/pools", "/v1/pools/", "/v1/leases", "//v1/pools",
		"/v1/./pools", "/v1/pools/p/call/../x"} {
		e.do("GET", path, nil).requireProblem(t, 404, codeNotFound)
	}
	a := e.do("GET", "/v1/pools/p/call/echo", nil)
	a.requireProblem(t, 405, codeMethodNotAllowed)
	require.Equal(t, "POST", a.header.Get("Allow"))
	a = e.do("PATCH", "/v1/leases/p.0.1.1", nil)
	a.requireProblem(t, 405, codeMethodNotAllowed)
	require.Equal(t, "PUT, DELETE", a.header.Get("Allow"))
}

func TestPoolsAndWorkersAreListedWithTheirStates(t *testing.T) {
	e := parallel(t, 2)
	e.lease(1, "me")
	pools := decode[[]map[string]any](t, e.do("GET", "/v1/pools", nil).body)
	require.Len(t, pools, 1)
	pool := decode[map[string]any](t, e.do("GET", "/v1/pools/p", nil).body)
	for _, p := range []map[string]any{pools[0], pool} {
		for _, w := range p["workers"].([]any) {
			delete(w.(map[string]any), "as_of") // when it was asked
			if lease, leased := w.(map[string]any)["lease"].(map[string]any); leased {
				delete(lease, "ttl_ms")
			}
		}
	}
	require.Equal(t, pools[0], pool)
	workers := decode[[]map[string]any](t, e.do("GET", "/v1/workers", nil).body)
	require.Len(t, workers, 2)
	require.Equal(t, "ready", workers[0]["state"])
	require.Equal(t, "busy", workers[1]["state"])
	e.do("GET", "/v1/pools/nope", nil).requireProblem(t, 404, "pool_not_found")
	e.control.setDown(true)
	e.do("GET", "/v1/pools", nil).requireProblem(t, 503, "unavailable")
}

// FuzzHTTP sends arbitrary bytes. The gateway must answer with HTTP or disconnect, and continue to serve.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
		"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"POST /v1/pools/p/leases HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n{\"holder\":\"me\",\"ttl_ms\":\"soon\"}  ",
		"POST /v1/leases/p.0.1.1/call/%2e%2e/%00 HTTP/1.1\r\nHost: x\r\nTempool-Timeout: 5\r\n\r\n",
		"PUT /v1/leases/p.0.1.9223372036854775808 HTTP/1.1\r\nHost: x\r\n\r\n",
		"DELETE /v1/leases/..... HTTP/1.0\r\n\r\n",
		"POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\nTempool-Priority: -1\r\nContent-Length: 99999999999\r\n\r\n",
		"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\nGET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	} {
		f.Add([]byte(seed))
	}
	// should the bytes spell crash
	quick := withSpec(func(sp *spec.Spec) { sp.Queue.Timeout = spec.Duration(50 * time.Millisecond) })
	e := open(f, 1, quick, withConfig(func(c *Config) {
		c.Limits.HeaderTime, c.Limits.ReadTime = 50*time.Millisecond,
			100*time.Millisecond
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		e.t = t
		c := e.dialPlain()
		_, _ = c.conn.Write(data) // the gateway may have hung up
		require.NoError(t, c.conn.(*net.UnixConn).CloseWrite())
		if first, err := c.in.Peek(1); err == nil {
			require.Equal(t, byte('H'), first[0])
			response, err := http.ReadResponse(c.in, nil)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			if response.StatusCode >= 400 && err == nil &&
				strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") {
				p := decode[Problem](t, body)
				require.Equal(t, response.StatusCode, p.Status)
			}
			if response.StatusCode == 500 {
				require.Contains(t, string(body), `"code":"worker_error"`, "the gateway itself never fails")
			}
		}
		e.ok("GET", "/healthz", nil)
	})
}

func TestProblemOfEachError(t *testing.T) {
	t.Parallel()
	remote := &wire.RemoteError{Code: "odd", Message: "so it was"}
	for name, c := range map[string]struct {
		err    error
		status int
		code   api.Code
	}{
		"coded": {api.Errorf(api.CodeLeaseFenced, "gone"), 409, api.CodeLeaseFenced},
		"coded and wrapped": {fmt.Errorf("while calling: %w", api.Errorf(api.CodeQueueFull, "full")), 429,
			api.CodeQueueFull},
		"a deadline":           {context.DeadlineExceeded, 504, api.CodeDeadlineExceeded},
		"a cancel":             {context.Canceled, 499, api.CodeCancelled},
		"the worker's own":     {api.Errorf(api.CodeWorkerError, "failed: %w", remote), 500, api.CodeWorkerError},
		"no such method":       {api.Errorf(api.CodeMethodNotFound, "failed: %w", remote), 404, api.CodeMethodNotFound},
		"unknown":              {errors.New("surprise"), 500, codeInternal},
		"a code nobody mapped": {api.Errorf("novel", "surprise"), 500, "novel"},
	} {
		t.Run(name, func(t *testing.T) {
			p := problemOf(c.err)
			require.Equal(t, c.status, p.Status)
			require.Equal(t, c.code, p.Code)
			require.NotEmpty(t, p.Title)
			require.NotEmpty(t, p.Detail)
			require.Equal(t, c.code == api.CodeWorkerError || c.code == api.CodeMethodNotFound, p.WorkerError != nil)
		})
	}
}

func TestTheReportOfAPoolIsServedToThoseWhoMayReadIt(t *testing.T) {
	e := parallel(t, 2)
	report := decode[policy.Report](t, e.ok("GET", "/v1/pools/p/report", nil).body)
	require.Equal(t, "p", report.Pool)
	require.Len(t, report.Health, 2)
	require.NotNil(t, report.Health[0].UptimeS)
	e.do("GET", "/v1/pools/q/report", nil).requireProblem(t, 404, api.CodePoolNotFound)
	e.control.set(func() { e.control.ended = true })
	e.do("GET", "/v1/pools/p/report", nil).requireProblem(t, 404, api.CodePoolNotFound)
}

func TestNoRouteShowsTheSecretsOfASpec(t *testing.T) {
	e := parallel(t, 1, option{spec: func(sp *spec.Spec) {
		sp.Pool.Env["BROKER"] = "amqps://s3cret@mq/"
		sp.Pool.Command = append(sp.Pool.Command, "redis://s3cret@db", "--token", "s3cret", "https://h/?key=s3cret")
	}})
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

// fakeSamples has one sample of each worker that it is asked for, of worker 0 if none is named.
func fakeSamples(pool string, slots []int) []api.RecentSamples {
	if slots == nil {
		slots = []int{0}
	}
	all := []api.RecentSamples{}
	for _, slot := range slots {
		all = append(all, api.RecentSamples{
			Worker: api.WorkerName(pool, slot), AgeMS: []int64{9}, Incarnation: []int64{1}, MemoryBytes: []int64{5},
			CPUPercent: []float32{1.5}, CallsPerMinute: []float32{2}, Score: []float32{90},
		})
	}
	return all
}

func TestSamplesOfTheWorkersThatARequestNames(t *testing.T) {
	e := parallel(t, 0)
	workers := func(query string) (names []string) {
		for _, one := range decode[[]api.RecentSamples](t, e.ok("GET", "/v1/pools/p/samples"+query, nil).body) {
			require.True(t, one.Valid())
			names = append(names, one.Worker)
		}
		return names
	}
	require.Equal(t, []string{"p/0"}, workers(""))
	require.Equal(t, []string{"p/3", "p/12"}, workers("?workers=3,12"))
	for _, wrong := range []string{"x", "-1", "1,", ",", strings.Repeat("1,", 1000) + "1"} {
		e.do("GET", "/v1/pools/p/samples?workers="+wrong, nil).requireProblem(t, http.StatusBadRequest, api.CodeInvalid)
	}
	e.do("GET", "/v1/pools/P/samples", nil).requireProblem(t, http.StatusNotFound, api.CodePoolNotFound)
}
