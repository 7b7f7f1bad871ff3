package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	webBytes       = 1024
	webConnections = 8
	webWarm        = time.Second
	webSpan        = 2 * time.Second
)

// webSide is a server and its target: how many times as fast the gateway must be, at max_inflight 1.
type webSide struct {
	name, url string
	target    float64
	row       *series
}

// measureWeb compares calls over HTTP with gunicorn and uWSGI.
func measureWeb(ctx context.Context, b *bench) {
	r := b.result
	sides := b.startWeb(ctx)
	body := bytes.Repeat([]byte("x"), webBytes)
	for i, side := range sides {
		sides[i].row = r.row(side.name, "requests/s")
		poll(ctx, startPolled, func(ctx context.Context) error { return postEcho(ctx, side.url, body) })
	}
	b.inTurn(len(sides), func(side int) {
		b.wrk(ctx, sides[side].url, webWarm)
		sides[side].row.add(b.wrk(ctx, sides[side].url, webSpan))
	})
	for _, other := range sides[:3] {
		ratio := r.ratio("gateway, max_inflight 1 ÷ "+other.name, sides[3].row, other.row)
		r.atLeast("requests over HTTP, max_inflight 1, relative to "+other.name, ratio.Median, other.target, "×")
	}
	r.note("%d Python processes per side, echo of %d bytes; wrk with %d connections and one thread on the same machine",
		callWorkers, webBytes, webConnections)
	r.note("gunicorn's sync workers and uWSGI's --http-socket close the connection after each response; its gthread " +
		"workers, of four threads each, and the gateway keep it open")
}

// startWeb starts all sides; the gateway with max_inflight 1 is the fourth.
func (b *bench) startWeb(ctx context.Context) []webSide {
	sync, gthread, uwsgi, gateway := freeAddress(), freeAddress(), freeAddress(), freeAddress()
	processes := fmt.Sprint(callWorkers)
	b.startWebserver("gunicorn", "--workers", processes, "--bind", sync, "wsgi_echo:app")
	b.startWebserver("gunicorn", "--worker-class", "gthread", "--threads", fmt.Sprint(webConnections/callWorkers),
		"--keep-alive", "75", "--workers", processes, "--bind", gthread, "wsgi_echo:app")
	// Without this header, wrk counts each closed connection as an error.
	b.startWebserver("uwsgi", "--plugin", "python3", "--http-socket", uwsgi, "--wsgi-file", "wsgi_echo.py",
		"--callable", "app", "--master", "--processes", processes, "--need-app", "--die-on-term", "--disable-logging",
		"--add-header", "Connection: close")
	b.agent(ctx, "web", false, "--listen", gateway)
	sides := []webSide{
		{name: "gunicorn, sync", url: "http://" + sync + "/", target: 3},
		{name: "gunicorn, gthread with keep-alive", url: "http://" + gthread + "/", target: 1.5},
		{name: "uWSGI, --http-socket", url: "http://" + uwsgi + "/", target: 1.5},
	}
	for _, inflight := range []int{1, 4} {
		pool := b.startPool(ctx, b.echoInflight(fmt.Sprintf("web-%d", inflight), callWorkers, inflight), startPolled)
		sides = append(sides, webSide{name: fmt.Sprintf("gateway, max_inflight %d", inflight),
			url: "http://" + gateway + "/v1/pools/" + pool.Name() + "/call/echo"})
	}
	return sides
}

// startWebserver starts gunicorn or uWSGI, from a Debian package.
func (b *bench) startWebserver(name string, args ...string) {
	server := exec.Command(name, args...)
	server.Dir = filepath.Join(b.dir, "workers")
	b.launch(name, server, false, func() error { return server.Process.Signal(syscall.SIGTERM) })
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
