package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startWebserver starts gunicorn or uWSGI, from a Debian package.
func (b *bench) startWebserver(name string, args ...string) error {
	server := exec.Command(name, args...)
	server.Dir = filepath.Join(b.dir, "workers")
	return b.launch(name, server, false, func() error { return server.Process.Signal(syscall.SIGTERM) })
}

// freeAddress returns an unused loopback address.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// awaitEcho sends requests until the server returns their body.
func awaitEcho(ctx context.Context, url string, size int) error {
	body := bytes.Repeat([]byte("x"), size)
	return poll(ctx, waitTimeout, 50*time.Millisecond, func(ctx context.Context) error { return postEcho(ctx, url, body) })
}

func postEcho(ctx context.Context, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("create a request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("post: %w", err)
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
func (b *bench) wrk(ctx context.Context, url string, connections int, span time.Duration) (float64, error) {
	printed, err := output(ctx, filepath.Join(b.dir, "workers"), "wrk", "-t", "1", "-c", strconv.Itoa(connections),
		"-d", strconv.Itoa(int(span.Seconds()))+"s", "-s", "post.lua", url)
	if err != nil {
		return 0, fmt.Errorf("load %s (scripts/setup-bench-debian.sh installs wrk): %w", url, err)
	}
	return readWrk(printed)
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
