package main

import (
	"context"
	"fmt"
	"time"
)

const (
	webBytes       = 1024
	webConnections = 8
	webWarm        = time.Second
	webSpan        = 2 * time.Second

	gunicornTarget = 3.0
	gthreadTarget  = 1.5
	uwsgiTarget    = 1.5
)

// measureWeb compares calls over HTTP with gunicorn and uWSGI.
func measureWeb(ctx context.Context, b *bench) error {
	urls, err := b.startWeb(ctx)
	if err != nil {
		return err
	}
	r := b.result
	rows := make([]*series, len(urls))
	for i, side := range urls {
		rows[i] = r.row(side.name, "requests/s")
		if err := awaitEcho(ctx, side.url, webBytes); err != nil {
			return err
		}
	}
	for round := range b.rounds {
		for i := range urls {
			at := (i + round) % len(urls)
			if _, err := b.wrk(ctx, urls[at].url, webConnections, webWarm); err != nil {
				return err
			}
			rate, err := b.wrk(ctx, urls[at].url, webConnections, webSpan)
			if err != nil {
				return fmt.Errorf("%s: %w", urls[at].name, err)
			}
			rows[at].add(rate)
		}
	}
	for i, other := range []struct {
		name   string
		target float64
	}{{"gunicorn, sync", gunicornTarget}, {"gunicorn, gthread", gthreadTarget}, {"uWSGI", uwsgiTarget}} {
		ratio := ratios("gateway, max_inflight 1 ÷ "+other.name, rows[3], rows[i])
		r.Rows = append(r.Rows, ratio)
		r.atLeast("requests over HTTP, max_inflight 1, relative to "+other.name, ratio.Median, other.target, "×")
	}
	r.note("%d Python processes per side, echo of %d bytes; wrk with %d connections and one thread on the same machine",
		callWorkers, webBytes, webConnections)
	r.note("gunicorn's sync workers and uWSGI's --http-socket close the connection after each response; its gthread " +
		"workers, of four threads each, and the gateway keep it open")
	return nil
}

type webSide struct{ name, url string }

// startWeb starts all sides.
func (b *bench) startWeb(ctx context.Context) ([]webSide, error) {
	var addresses [4]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	processes := fmt.Sprint(callWorkers)
	if err := b.startWebserver("gunicorn", "--workers", processes, "--bind", addresses[0], "wsgi_echo:app"); err != nil {
		return nil, err
	}
	if err := b.startWebserver("gunicorn", "--worker-class", "gthread", "--threads",
		fmt.Sprint(webConnections/callWorkers), "--keep-alive", "75",
		"--workers", processes, "--bind", addresses[3], "wsgi_echo:app"); err != nil {
		return nil, err
	}
	// Without this header, wrk counts each closed connection as an error.
	err := b.startWebserver("uwsgi", "--plugin", "python3", "--http-socket", addresses[1], "--wsgi-file", "wsgi_echo.py",
		"--callable", "app", "--master", "--processes", processes, "--need-app", "--die-on-term", "--disable-logging",
		"--add-header", "Connection: close")
	if err != nil {
		return nil, err
	}
	if _, err := b.agent(ctx, "web", "--listen", addresses[2]); err != nil {
		return nil, err
	}
	sides := []webSide{
		{"gunicorn, sync", "http://" + addresses[0] + "/"},
		{"gunicorn, gthread with keep-alive", "http://" + addresses[3] + "/"},
		{"uWSGI, --http-socket", "http://" + addresses[1] + "/"},
	}
	for _, inflight := range []int{1, 4} {
		pool, err := b.startPool(ctx, b.echoInflight(fmt.Sprintf("web-%d", inflight), callWorkers, inflight))
		if err != nil {
			return nil, err
		}
		sides = append(sides, webSide{
			fmt.Sprintf("gateway, max_inflight %d", inflight), "http://" + addresses[2] + "/v1/pools/" + pool.Name() +
				"/call/echo",
		})
	}
	return sides, nil
}
