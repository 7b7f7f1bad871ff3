package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// webserver is a server of others, run from a Debian package.
type webserver struct {
	name string
	cmd  *exec.Cmd
	said *os.File
}

func (b *bench) startWebserver(name string, args ...string) (*webserver, error) {
	s := &webserver{name: name, cmd: exec.Command(name, args...)}
	var err error
	if s.said, err = os.Create(filepath.Join(b.dir, name+".log")); err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	s.cmd.Dir = filepath.Join(b.dir, "workers")
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		_ = s.said.Close()
		return nil, fmt.Errorf("start %s (scripts/setup-bench-debian.sh installs it): %w", name, err)
	}
	return s, nil
}

// stop ends the server and its workers. How it ends is no matter, that it does is.
func (s *webserver) stop() error {
	defer s.said.Close()
	force := time.AfterFunc(actorPatience, func() { _ = s.cmd.Process.Kill() })
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		content, _ := os.ReadFile(s.said.Name()) // without it the end alone is told
		return fmt.Errorf("%s had ended before: %w:\n%s", s.name, err, content[max(0, len(content)-4096):])
	}
	_ = s.cmd.Wait()
	if !force.Stop() {
		return fmt.Errorf("%s did not end within %s of TERM", s.name, actorPatience)
	}
	return nil
}

// freeAddress is one of this host that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// awaitEcho posts until the echo comes back.
func awaitEcho(ctx context.Context, url string, size int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body := bytes.Repeat([]byte("x"), size)
	for {
		err := postEcho(ctx, url, body)
		if err == nil {
			return nil
		}
		if waited := wait(ctx, 50*time.Millisecond); waited != nil {
			return fmt.Errorf("no echo from %s in %s: %w", url, patience, err)
		}
	}
}

func postEcho(ctx context.Context, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !bytes.Equal(answer, body)) {
		err = fmt.Errorf("%s with %.200q", response.Status, answer)
	}
	return err
}

var (
	wrkRate    = regexp.MustCompile(`(?m)^Requests/sec:\s+([0-9.]+)$`)
	wrkTrouble = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx or 3xx responses): .*$`)
)

// wrk loads a server for a span of whole seconds and returns the requests in a second. Any answer but 200 is an error.
func (b *bench) wrk(ctx context.Context, url string, connections int, span time.Duration) (float64, error) {
	said, err := output(ctx, filepath.Join(b.dir, "workers"), "wrk", "-t", "1", "-c", strconv.Itoa(connections),
		"-d", strconv.Itoa(int(span.Seconds()))+"s", "-s", "post.lua", url)
	if err != nil {
		return 0, fmt.Errorf("load %s (scripts/setup-bench-debian.sh installs wrk): %w", url, err)
	}
	return readWrk(said)
}

func readWrk(said string) (float64, error) {
	if trouble := wrkTrouble.FindString(said); trouble != "" {
		return 0, fmt.Errorf("not all requests were answered: %s", strings.TrimSpace(trouble))
	}
	rate := wrkRate.FindStringSubmatch(said)
	if rate == nil {
		return 0, fmt.Errorf("wrk named no rate: %s", said)
	}
	return strconv.ParseFloat(rate[1], 64)
}
