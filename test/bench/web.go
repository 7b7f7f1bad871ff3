package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	webBytes       = 1024
	webConnections = 8
	webWarm        = time.Second
	webSpan        = 2 * time.Second
)

// measureWeb compares calls over HTTP with gunicorn and uWSGI, and with what net/http alone takes.
func measureWeb(ctx context.Context, b *bench) {
	r := b.result
	sides := b.startWeb(ctx)
	b.compare(sides, webWarm, webSpan)
	gateway := sides[len(sides)-2]
	// How many times as fast the gateway must be, at max_inflight 1; 0 for none.
	for i, target := range []float64{3, 1.5, 1.5, 1, 0} {
		other := sides[i].rate
		ratio := r.ratio(gateway.rate.Name+" ÷ "+other.Name, gateway.rate, other)
		if target > 0 {
			r.atLeast("requests over HTTP, max_inflight 1, relative to "+other.Name, ratio.Median, target, "×")
		}
	}
	r.atMost(gateway.rate.Name+", processor time in the agent", gateway.ofGo.Median, 25, "µs")
	r.note("%d Python processes per side, echo of %d bytes; wrk with %d connections and one thread on the same machine",
		callWorkers, webBytes, webConnections)
	r.note("gunicorn's sync workers and uWSGI's --http-socket close the connection after each response; the others keep " +
		"it open; a process of uWSGI's --http11-socket serves one connection until it ends, and the rest of them wait")
}

// startWeb starts all sides; the gateway with max_inflight 1 is the last but one.
func (b *bench) startWeb(ctx context.Context) (sides []*side) {
	sync, gthread, closing, open, gateway := freeAddress(), freeAddress(), freeAddress(), freeAddress(), freeAddress()
	processes := fmt.Sprint(callWorkers)
	b.startWebserver("gunicorn", "--workers", processes, "--bind", sync, "wsgi_echo:app")
	b.startWebserver("gunicorn", "--worker-class", "gthread", "--threads", fmt.Sprint(webConnections/callWorkers),
		"--keep-alive", "75", "--workers", processes, "--bind", gthread, "wsgi_echo:app")
	uwsgi := []string{"--plugin", "python3", "--wsgi-file", "wsgi_echo.py", "--callable", "app", "--master",
		"--processes", processes, "--need-app", "--die-on-term", "--disable-logging"}
	// Without this header, wrk counts each closed connection as an error.
	b.startWebserver("uwsgi", append([]string{"--http-socket", closing, "--add-header", "Connection: close"}, uwsgi...)...)
	b.startWebserver("uwsgi", append([]string{"--http11-socket", open}, uwsgi...)...)
	agent := b.agent("web", false, "--listen", gateway)
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		body, _ := io.ReadAll(r.Body) // postEcho and wrk notice a part
		_, _ = w.Write(body)
	}))
	b.atEnd(func(context.Context) error { bare.Close(); return nil })
	body := bytes.Repeat([]byte("x"), webBytes)
	add := func(name, url string, program int, workers []int) {
		poll(ctx, startPolled, func(ctx context.Context) error { return postEcho(ctx, url, body) })
		sides = append(sides, b.result.side(name, "requests/s", program, workers,
			func(span time.Duration) float64 { return b.wrk(ctx, url, span) }))
	}
	add("gunicorn, sync", "http://"+sync+"/", 0, nil)
	add("gunicorn, gthread with keep-alive", "http://"+gthread+"/", 0, nil)
	add("uWSGI, --http-socket", "http://"+closing+"/", 0, nil)
	add("uWSGI, --http11-socket", "http://"+open+"/", 0, nil)
	add("net/http alone", bare.URL, os.Getpid(), nil)
	for _, inflight := range []int{1, 4} {
		pool := b.startPool(ctx, b.echoInflight(fmt.Sprintf("web-%d", inflight), callWorkers, inflight), startPolled)
		add(fmt.Sprintf("gateway, max_inflight %d", inflight),
			"http://"+gateway+"/v1/pools/"+pool.Name()+"/call/echo", agent.Process.Pid, workersOf(ctx, pool))
	}
	return sides
}

// startWebserver starts gunicorn or uWSGI, from a Debian package.
func (b *bench) startWebserver(name string, args ...string) {
	server := exec.Command(name, args...)
	server.Dir = filepath.Join(b.dir, "workers")
	b.launch(name, server, false, terminate(server))
}

// postEcho fails unless the server returns the body.
func postEcho(ctx context.Context, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	returned, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Equal(returned, body)) {
		err = fmt.Errorf("unexpected response: %s, %.200q", response.Status, returned)
	}
	return err
}

var (
	wrkRate   = regexp.MustCompile(`(?m)^Requests/sec:\s+([0-9.]+)$`)
	wrkErrors = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx or 3xx responses): .*$`)
)

// wrk sends requests for a span of whole seconds and returns the requests per second. Any status but 200 is an error.
func (b *bench) wrk(ctx context.Context, url string, span time.Duration) float64 {
	printed, err := output(ctx, filepath.Join(b.dir, "workers"), "wrk", "-t", "1", "-c", strconv.Itoa(webConnections),
		"-d", strconv.Itoa(int(span.Seconds()))+"s", "-s", "post.lua", url)
	if err != nil {
		check(fmt.Errorf("load %s (scripts/setup-bench-debian.sh installs wrk): %w", url, err))
	}
	return must(readWrk(printed))
}

func readWrk(printed string) (float64, error) {
	if problem := wrkErrors.FindString(printed); problem != "" {
		return 0, fmt.Errorf("some requests failed: %s", strings.TrimSpace(problem))
	}
	rate := wrkRate.FindStringSubmatch(printed)
	if rate == nil {
		return 0, fmt.Errorf("no rate in the output of wrk: %s", printed)
	}
	return strconv.ParseFloat(rate[1], 64)
}
