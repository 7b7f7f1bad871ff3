package process

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tempool/tempool/spec"
)

// maxProbeOutput is how much of an exec probe's output is kept for its error.
const maxProbeOutput = 1 << 10

// Probe checks the worker's health once, as the spec's health section says and within its timeout. nil means healthy. ErrBusy
// means that nothing was checked: an rpc probe waits its turn behind calls, so while max_inflight of them are in flight it would
// only measure those. Any other error says what is wrong.
func (p *Process) Probe(ctx context.Context) error {
	select {
	case <-p.exited:
		return fmt.Errorf("probe %s: the process has ended", p.key())
	default:
	}
	health := p.spec.Health
	if limit := health.Timeout.D(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within health.timeout (%s)", health.Timeout))
		defer cancel()
	}
	var err error
	switch health.Kind {
	case spec.HealthRPC:
		err = p.probeRPC(ctx)
	case spec.HealthHTTP:
		err = p.probeHTTP(ctx, health.Path)
	case spec.HealthTCP:
		err = p.probeTCP(ctx)
	case spec.HealthExec:
		err = p.probeExec(ctx, health.Command)
	default:
		err = coded(CodeInvalid, nil, "health.kind %q is not known", health.Kind)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	return fmt.Errorf("%s probe of %s: %w", health.Kind, p.key(), err)
}

func (p *Process) probeRPC(ctx context.Context) error {
	if p.conn == nil {
		return coded(CodeInvalid, nil, "a program of protocol none answers no rpc probe: set health.kind to http, tcp or exec")
	}
	if most := max(p.spec.Pool.MaxInflight, 1); p.conn.InFlight() >= most {
		return coded(CodeBusy, nil, "skipped: %d calls are in flight", most)
	}
	return p.conn.Ping(ctx)
}

// target is where probes connect: the port the spec gives, or else the program's own address.
func (p *Process) target() (network, where string, err error) {
	if port := p.spec.Health.Port; port != 0 {
		return "tcp", address{port: port}.tcp(), nil
	}
	where = p.Info().Address
	switch {
	case where == "":
		return "", "", coded(CodeInvalid, nil, "it does not listen, and health.port names no other port to connect to")
	case filepath.IsAbs(where):
		return "unix", where, nil
	}
	return "tcp", where, nil
}

func (p *Process) probeTCP(ctx context.Context) error {
	network, where, err := p.target()
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, where)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (p *Process) probeHTTP(ctx context.Context, path string) error {
	network, where, err := p.target()
	if err != nil {
		return err
	}
	host := where
	if network == "unix" {
		host = "localhost"
	}
	ask, err := url.Parse("http://" + host + "/" + strings.TrimPrefix(path, "/"))
	if err != nil {
		return coded(CodeInvalid, err, "health.path %q", path)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ask.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "tempool-probe")
	transport := &http.Transport{ // of its own, since a kept connection would prove nothing about accepting new ones
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, where)
		},
	}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("GET %s answered %s", path, response.Status)
	}
	return nil
}

// probeExec runs the command in the worker's folder, environment and account; it belongs to the worker's tree by its cookie, and its
// own group is killed when it takes too long.
func (p *Process) probeExec(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return coded(CodeInvalid, nil, "health.kind exec needs health.command")
	}
	dir := p.spec.Pool.Dir
	program, err := lookProgram(command[0], dir, p.plan.environ)
	if err != nil {
		return err
	}
	cmd := p.plan.command(program, command, dir)
	output := &boundedBuffer{room: maxProbeOutput}
	cmd.Stdout, cmd.Stderr = output, output
	if err := p.plan.start(cmd); err != nil {
		return err
	}
	awaitExit := exitWatch(cmd.Process.Pid)
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit()
	}()
	select {
	case <-exited:
	case <-ctx.Done():
	}
	// Not reaped yet, so the group's number is still its own; this ends what the command left running, too.
	err = signalGroup(cmd.Process.Pid, syscall.SIGKILL)
	if err == nil {
		<-exited
		err = waitChild(cmd)
	}
	if said := output.text(); err != nil && said != "" {
		return fmt.Errorf("%s: %w: %s", command[0], err, said)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return nil
}

// boundedBuffer keeps the first bytes and takes the rest without keeping it.
type boundedBuffer struct {
	kept []byte
	room int
}

func (b *boundedBuffer) Write(data []byte) (int, error) {
	keep := min(len(data), b.room)
	b.room -= keep
	b.kept = append(b.kept, data[:keep]...)
	return len(data), nil
}

func (b *boundedBuffer) text() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(b.kept), "\uFFFD"))
}
