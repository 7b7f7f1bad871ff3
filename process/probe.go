package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// maxProbeOutput bounds the output of an exec probe in its error, in bytes.
const maxProbeOutput = 1 << 10

// probeStartTimeout bounds how long an exec probe waits until its command runs.
const probeStartTimeout = 15 * time.Second

// exitNotice is how long after its connections have broken the exit of a process may be noticed.
const exitNotice = 100 * time.Millisecond

// Probe checks the worker's health once, as the spec's health section says and within its timeout. nil means healthy.
// ErrBusy means that the probe was skipped: the tree is frozen, or the worker would answer an rpc probe only after its
// calls, so with max_inflight of them in flight the probe would measure those, unless it is answered nevertheless.
// ErrUnavailable means that the process has exited, or soon will: its Exit says more than a check. Any other error says
// what is wrong.
func (p *Process) Probe(ctx context.Context) error {
	head := p
	p = p.now()
	pointless := func() error {
		switch {
		case p.currentTermination().recycled || p != head && !p.isReady():
			return coded(CodeBusy, nil, "skipped: %s gets a clean process", p.key())
		case sleep.Ended(p.exited) || p.HasEnded() || p.conn != nil && p.conn.Err() != nil: // which ends it
			return coded(CodeUnavailable, nil, "probe %s: the process has ended", p.key())
		}
		return nil
	}
	if err := pointless(); err != nil {
		return err
	}
	if p.vacant() {
		return nil
	}
	if p.Frozen() {
		return coded(CodeBusy, nil, "skipped: the process tree of %s is frozen", p.key())
	}
	health := p.spec.Health
	if limit := health.Timeout.D(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit,
			fmt.Errorf("no answer within health.timeout (%s)", health.Timeout))
		defer cancel()
	}
	var err error
	switch health.Kind {
	case spec.HealthRPC:
		err = p.probeRPC(ctx)
	default:
		err = p.kind.probe(ctx)
	}
	cause := context.Cause(ctx)
	if err != nil && cause == nil && !errors.Is(err, ErrBusy) && p.isReady() { // a start looks again soon
		sleep.For(p.exited, exitNotice)
	}
	if ended := pointless(); ended != nil || err == nil {
		return ended
	}
	if cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("%s probe of %s: %w", health.Kind, p.key(), err)
}

func (p *Process) probeRPC(ctx context.Context) error {
	if p.conn == nil {
		return coded(CodeInvalid, nil, "protocol none has no rpc probe; set health.kind to http, tcp or exec")
	}
	if limit := max(p.spec.Pool.MaxInflight, 1); p.conn.InFlight() >= limit {
		return coded(CodeBusy, nil, "skipped: %d calls are in flight", limit)
	}
	return p.conn.Ping(ctx)
}

// probeTarget returns where probes connect: health.port, or else the program's address.
func (p *Process) probeTarget() (addr string, err error) {
	if port := p.spec.Health.Port; port != 0 {
		return address{port: port}.tcp(), nil
	}
	if addr = p.Info().Address; addr == "" {
		return "", coded(CodeInvalid, nil, "the program does not listen, and health.port is not set")
	}
	return addr, nil
}

func (p *Process) probeTCP(ctx context.Context) error {
	addr, err := p.probeTarget()
	if err != nil {
		return err
	}
	conn, err := p.Dial(ctx, addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (p *Process) probeHTTP(ctx context.Context, path string) error {
	addr, err := p.probeTarget()
	if err != nil {
		return err
	}
	host := addr
	if filepath.IsAbs(addr) {
		host = "localhost"
	}
	target, err := url.Parse("http://" + host + "/" + strings.TrimPrefix(path, "/"))
	if err != nil {
		return coded(CodeInvalid, redact.Error(err), "health.path %q", redact.URLs(path))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "tempool-probe")
	transport := &http.Transport{ // a reused connection would not prove that the program accepts new ones
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx, addr) },
	}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return redact.Error(err) // its text has the URL
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("GET %s answered %s", redact.URLs(path), response.Status)
	}
	return nil
}

// probeExec runs the command with the worker's directory, environment, credentials, limits and sandbox. The command
// belongs to the worker's tree by its mark; its own process group is killed after it exits or times out.
func (p *Process) probeExec(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return coded(CodeInvalid, nil, "health.kind exec needs health.command")
	}
	dir := p.plan.dir
	program, err := findProgram(command[0], dir, p.plan.environ)
	if err != nil {
		return err
	}
	cmd := p.plan.command(program, command, dir)
	output := &limitedBuffer{remaining: maxProbeOutput}
	cmd.Stdout, cmd.Stderr = output, output
	p.probing.RLock() // the namespaces stay open
	own, _, err := p.plan.launch(cmd, p.namespaces, probeStartTimeout)
	p.probing.RUnlock()
	own.Close()
	if err != nil {
		return err
	}
	exited := sleep.Done(tree.WatchExit(tree.Identity{PID: cmd.Process.Pid}))
	select {
	case <-exited:
	case <-ctx.Done():
	}
	// The command is unreaped, so its PID still identifies the group. This also kills what the command left running.
	err = tree.SignalGroup(cmd.Process.Pid, syscall.SIGKILL)
	if err == nil {
		<-exited
		err = tree.WaitChild(cmd)
	}
	if text := output.text(); err != nil && text != "" {
		return fmt.Errorf("%s: %w: %s", command[0], err, text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return nil
}

// limitedBuffer stores the first bytes and discards the rest.
type limitedBuffer struct {
	data      []byte
	remaining int
}

func (b *limitedBuffer) Write(data []byte) (int, error) {
	n := min(len(data), b.remaining)
	b.remaining -= n
	b.data = append(b.data, data[:n]...)
	return len(data), nil
}

func (b *limitedBuffer) text() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(b.data), "\uFFFD"))
}
