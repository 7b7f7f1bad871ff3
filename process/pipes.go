package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// Protocol frames has its socket and its pipe at the first descriptors after stderr.
const (
	framesFD = 3
	outFD    = 4
)

// pipes are the supervisor's ends.
type pipes struct {
	logs [2]*os.File // stdout (unless it carries the protocol) and stderr
	in   *os.File    // the protocol, as the agent reads it
	out  *os.File    // and writes it; of a template: its control socket, for both
}

// open makes the pipes and gives cmd the child's ends, which it also appends to childEnds. The caller closes those
// after the fork.
func (p *pipes) open(protocol string, cmd *exec.Cmd, childEnds *[]*os.File) (err error) {
	pair := func(ours **os.File, open func() (ours, theirs *os.File, err error)) (theirs *os.File) {
		if err != nil {
			return nil
		}
		if *ours, theirs, err = open(); err == nil {
			*childEnds = append(*childEnds, theirs)
		}
		return theirs
	}
	cmd.Stderr = pair(&p.logs[1], os.Pipe)
	if protocol == spec.ProtocolJSONRPC {
		cmd.Stdout = pair(&p.in, os.Pipe)
		cmd.Stdin = pair(&p.out, func() (ours, theirs *os.File, err error) {
			theirs, ours, err = os.Pipe()
			return ours, theirs, err
		})
	} else {
		cmd.Stdout = pair(&p.logs[0], os.Pipe)
	}
	switch protocol {
	case protocolTemplate:
		cmd.ExtraFiles = []*os.File{pair(&p.out, launcher.SocketPair)}
	case spec.ProtocolFrames:
		socket := pair(&p.out, launcher.SocketPair)
		cmd.ExtraFiles = []*os.File{socket, pair(&p.in, os.Pipe)}
		if err == nil {
			err = unix.Shutdown(int(socket.Fd()), unix.SHUT_WR) // a frame written there fails with EPIPE
		}
	}
	if err != nil {
		return fmt.Errorf("make pipes to the program: %w", err)
	}
	return nil
}

func (p *pipes) close() {
	for _, file := range []*os.File{p.logs[0], p.logs[1], p.in, p.out} {
		if file != nil {
			file.Close()
		}
	}
}

// connect opens the protocol, or resumes it after what an earlier agent has read and written; nil for protocol none.
func (p *Process) connect(before *wire.State) (*wire.Conn, error) {
	pool, options := p.spec.Pool, p.wireOptions()
	switch {
	case pool.Protocol == spec.ProtocolFrames && before == nil:
		return wire.NewFrames(p.pipes.in, p.pipes.out, options), nil
	case pool.Protocol == spec.ProtocolFrames:
		return wire.ResumeFrames(p.pipes.in, p.pipes.out, *before, options)
	case pool.Protocol == spec.ProtocolJSONRPC && before == nil:
		return wire.NewJSONRPC(p.pipes.in, p.pipes.out, pool.Framing, options)
	case pool.Protocol == spec.ProtocolJSONRPC:
		return wire.ResumeJSONRPC(p.pipes.in, p.pipes.out, pool.Framing, *before, options)
	}
	return nil, nil
}

func (p *Process) wireOptions() wire.Options {
	o := wire.Options{
		MaxMessage: int64(p.spec.Pool.MaxMessage), MaxInflight: p.spec.Pool.MaxInflight,
		CancelGrace: p.spec.Call.CancelGrace.D(), MCP: p.spec.MCP.On(),
		PingMethod: p.spec.Health.Method, HostCall: p.hostCall, OnOutput: p.printed, OnUnhealthy: p.reportUnhealthy,
		OnException: p.raised,
	}
	if p.Era() == spec.EraModern {
		o.MCPMeta = []byte(mcpMeta)
		if o.PingMethod == "" || o.PingMethod == "ping" {
			o.PingMethod = mcpDiscover
		}
	}
	return o
}

// printed stores what a JSON-RPC program wrote to stdout between its messages.
func (p *Process) printed(text []byte) {
	truncated := text[:min(len(text), maxLineBytes)]
	p.logs.Add("stdout", strings.ToValidUTF8(string(truncated), "\uFFFD"))
}

// raised writes the traceback of a call's exception to the worker's log: its caller may not be shown it.
func (p *Process) raised(failure *wire.RemoteError) {
	message, _, _ := strings.Cut(failure.Message, "\n")
	p.logs.Note(truncate(fmt.Sprintf("a call raised %s: %s", failure.Type, message), maxLineBytes))
	lines := 0
	for line := range strings.Lines(failure.Traceback) {
		if lines++; lines > maxTracebackLines {
			p.logs.Note("… (traceback cut)")
			return
		}
		p.logs.Note(truncate(strings.TrimRight(line, "\r\n"), maxLineBytes))
	}
}

func (p *Process) hostCall(ctx context.Context, method string, headers map[string]string,
	payload []byte) ([]byte, error) {
	handler := p.supervisor.config.HostCall
	if handler == nil {
		return nil, errors.New("this host supports no host calls")
	}
	return handler(ctx, HostCall{
		Worker: p.name.worker, Incarnation: p.name.incarnation, Method: method, Headers: headers, Payload: payload,
	})
}
