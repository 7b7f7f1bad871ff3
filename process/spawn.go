package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// waitDelay is how long pipes are read on when all known members of a tree are gone: who holds them open then is a stranger.
const waitDelay = 500 * time.Millisecond

// plan is all that is decided before a process is spawned.
type plan struct {
	cookie  string
	program string
	environ []string
	who     *account
	umask   int // -1: the agent's own
	fork    func(*exec.Cmd) error
	address address
	limits  processLimits
	means   map[string]Means
	cgroup  *cgroup // nil without one
}

func (s *Supervisor) plan(launch Launch) (plan, error) {
	pool := launch.Spec.Pool
	p := plan{cookie: newCookie(s.config.HostID, launch.Worker, launch.Incarnation, s.folder.id), umask: -1, fork: s.config.fork}
	if pool.Dir != "" {
		if info, err := os.Stat(pool.Dir); err != nil || !info.IsDir() {
			return p, coded(CodeInvalid, err, "pool.dir %q is not a folder of this host", pool.Dir)
		}
	}
	if pool.Umask != "" {
		mask, err := strconv.ParseUint(pool.Umask, 8, 9)
		if err != nil {
			return p, coded(CodeInvalid, err, "pool.umask %q is not octal text such as 022", pool.Umask)
		}
		p.umask = int(mask)
	}
	var err error
	if p.who, err = lookUpAccount(pool.User, pool.Group); err != nil {
		return p, err
	}
	ours := map[string]string{EnvWorker: launch.Worker, EnvIncarnation: p.cookie}
	switch pool.Protocol {
	case spec.ProtocolFrames:
		ours[EnvFD], ours[EnvOut] = strconv.Itoa(framesFD), strconv.Itoa(outFD)
	case spec.ProtocolNone:
		if p.address, err = s.chooseAddress(p.who); err != nil {
			return p, err
		}
		ours[EnvPort], ours[EnvSocket] = strconv.Itoa(p.address.port), p.address.socket
	}
	p.environ = environment(pool, ours, os.LookupEnv)
	if p.program, err = lookProgram(pool.Command[0], pool.Dir, p.environ); err != nil {
		s.releaseAddress(p.address)
		return p, err
	}
	if err = s.planLimits(launch, &p); err != nil {
		s.releaseAddress(p.address)
		return p, err
	}
	return p, nil
}

// planLimits chooses the means of the launch's limits, and makes the control group if there is to be one.
func (s *Supervisor) planLimits(launch Launch, p *plan) error {
	planned, err := planLimits(&launch.Spec, launch.Worker, s.hostMeans)
	if err != nil {
		return err
	}
	p.limits, p.means = planned.own, planned.means
	if planned.useCgroup {
		p.cgroup, err = s.cgroups.make(cgroupName(key{launch.Worker, launch.Incarnation}), planned.cgroup)
	}
	return err
}

// command is a command of the worker's, in its folder, environment and account and in a session of its own.
func (p plan) command(program string, args []string, dir string) *exec.Cmd {
	return &exec.Cmd{
		Path: program, Args: args, Dir: dir, Env: p.environ,
		SysProcAttr: sessionAttr(p.who), WaitDelay: waitDelay,
	}
}

// start forks with the plan's umask.
func (p plan) start(cmd *exec.Cmd) error {
	if p.umask < 0 {
		return p.fork(cmd)
	}
	return withUmask(p.umask, func() error { return p.fork(cmd) })
}

// spawn runs the program and everything that goes with it. When it returns without error, the process is in the supervisor's
// list, known to the reaper and on record, and supervised until it ends.
func (s *Supervisor) spawn(launch Launch) (*Process, error) {
	pl, err := s.plan(launch)
	if err != nil {
		return nil, err
	}
	p := &Process{
		supervisor: s, name: key{launch.Worker, launch.Incarnation}, spec: &launch.Spec, plan: &pl, logs: &logRing{}, known: &memberSet{},
		wake: make(chan struct{}, 1), exited: make(chan struct{}), done: make(chan struct{}),
		limits: launch.Spec.Limits, limitMeans: pl.means, exceeded: make(chan struct{}),
	}
	// The record and the reaper come first: from the fork on, somebody must know the cookie.
	if err := s.folder.writeRecord(p.record()); err != nil {
		pl.cgroup.remove(s.logger)
		s.releaseAddress(pl.address)
		return nil, err
	}
	s.reaper.watch(p.treeKey())
	if err := p.fork(); err != nil {
		p.forget()
		return nil, err
	}
	s.reaper.watch(p.treeKey())
	if err := s.folder.writeRecord(p.record()); err != nil {
		s.logger.Warn("the record of a process lacks its PID", "worker", launch.Worker, "error", err)
	}

	s.mu.Lock()
	s.live[p.key()] = p
	s.processes.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.processes.Done()
		p.supervise()
	}()
	return p, nil
}

// Protocol frames has its socket and its pipe at the first descriptors after stderr.
const (
	framesFD = 3
	outFD    = 4
)

// fork starts the program with its pipes, and the readers of those.
func (p *Process) fork() error {
	var ends []*os.File // the child's, which only it holds once it runs
	pipes := pipes{}
	defer func() {
		for _, end := range ends {
			end.Close()
		}
	}()
	cmd := p.plan.command(p.plan.program, p.spec.Pool.Command, p.spec.Pool.Dir)
	err := pipes.open(p.spec.Pool.Protocol, cmd, &ends)
	if err == nil {
		var reply launchReply
		if reply, err = p.plan.launch(cmd, p.spec.Start.Timeout.D()); reply.OpenFiles > 0 {
			p.supervisor.logger.Warn("this host allows fewer open files than limits.open_files asks for", "worker", p.Worker(),
				"wanted", p.plan.limits.OpenFiles, "in_force", reply.OpenFiles)
		}
	}
	if err != nil {
		pipes.close()
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
			return fmt.Errorf("this host has no room for another process: %w", err)
		}
		return err
	}
	p.cmd = cmd
	p.root, p.startedAt = identity{PID: cmd.Process.Pid}, time.Now()
	p.meter.cpuAt = p.startedAt
	if found, err := readRow(cmd.Process.Pid); err == nil && found != nil {
		p.root, p.meter.cpu = found.identity, found.cpu // what the launcher has used is not the program's
	}
	p.awaitExit = exitWatch(cmd.Process.Pid)
	p.pipes = pipes
	if pipes.logs[0] != nil {
		p.readers.Go(func() { p.readLog("stdout", pipes.logs[0]) })
	}
	p.readers.Go(func() { p.readLog("stderr", pipes.logs[1]) })
	p.conn, p.connErr = p.connect()
	return nil
}

// pipes are the supervisor's ends.
type pipes struct {
	logs   [2]*os.File // stdout (unless it is the protocol) and stderr
	frames *os.File    // protocol frames: what the worker reads
	out    *os.File    // and writes, unless it answers by the socket
	stdin  *os.File    // protocol jsonrpc: what the worker reads
	stdout *os.File    // and writes
}

func (p *pipes) open(protocol string, cmd *exec.Cmd, ends *[]*os.File) error {
	var err error
	reader := func(ours **os.File) *os.File {
		if err != nil {
			return nil
		}
		var theirs *os.File
		if *ours, theirs, err = os.Pipe(); err == nil {
			*ends = append(*ends, theirs)
		}
		return theirs
	}
	stderr := reader(&p.logs[1])
	stdout := &p.logs[0]
	if protocol == spec.ProtocolJSONRPC {
		stdout = &p.stdout
	}
	out := reader(stdout)
	var in, frames *os.File
	if err == nil && protocol == spec.ProtocolJSONRPC {
		if in, p.stdin, err = os.Pipe(); err == nil {
			*ends = append(*ends, in)
			cmd.Stdin = in
		}
	}
	if err == nil && protocol == spec.ProtocolFrames {
		out := reader(&p.out)
		if err == nil {
			p.frames, frames, err = socketPair()
		}
		if err == nil {
			*ends = append(*ends, frames)
			cmd.ExtraFiles = []*os.File{frames, out}
		}
	}
	if err != nil {
		return fmt.Errorf("make pipes to the program: %w", err)
	}
	cmd.Stdout, cmd.Stderr = out, stderr
	return nil
}

func (p *pipes) close() {
	for _, file := range []*os.File{p.logs[0], p.logs[1], p.frames, p.out, p.stdin, p.stdout} {
		if file != nil {
			file.Close()
		}
	}
}

// connect opens the protocol; nil for protocol none.
func (p *Process) connect() (wire.Conn, error) {
	pool := p.spec.Pool
	options := wire.Options{
		MaxMessage: int64(pool.MaxMessage), MaxInflight: pool.MaxInflight, CancelGrace: cancelGrace,
		PingMethod: p.spec.Health.Method, HostCall: p.hostCall,
	}
	switch pool.Protocol {
	case spec.ProtocolFrames:
		return wire.NewFrames(p.pipes.out, p.pipes.frames, options)
	case spec.ProtocolJSONRPC:
		return wire.NewJSONRPC(p.pipes.stdout, p.pipes.stdin, pool.Framing, options)
	}
	return nil, nil
}

// cancelGrace is how long a worker may take to answer a cancelled call before it is taken to be stuck.
const cancelGrace = 2 * time.Second

func (p *Process) hostCall(ctx context.Context, method string, headers map[string]string, payload []byte) ([]byte, error) {
	answer := p.supervisor.config.HostCall
	if answer == nil {
		return nil, errors.New("this host answers no calls of its workers")
	}
	return answer(ctx, HostCall{
		Worker: p.name.worker, Incarnation: p.name.incarnation, Method: method, Headers: headers, Payload: payload,
	})
}

// record is what the state folder holds about the process.
func (p *Process) record() record {
	return record{
		Worker: p.name.worker, Incarnation: p.name.incarnation, Key: p.treeKey(),
		Boot: bootID(), StartedAt: p.startedAt, SocketDir: p.plan.address.dir,
	}
}

// forget takes back what was told of the process outside it, when nothing of it is left.
func (p *Process) forget() {
	s := p.supervisor
	s.reaper.forget(p.plan.cookie)
	if err := s.folder.removeRecord(p.name.worker, p.name.incarnation); err != nil {
		s.logger.Warn("the record of an ended process stays", "worker", p.name.worker, "error", err)
	}
	p.plan.cgroup.remove(s.logger)
	s.releaseAddress(p.plan.address)
}
