package process

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/sandbox"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// plan holds all decisions that precede the spawn of a process.
type plan struct {
	cookie      string
	mark        tree.Mark
	program     string
	dir         string
	args        []string // of the program, with its name as the first
	environ     []string
	ours        map[string]string // the variables of environ that are Tempool's own
	credentials *launcher.Credentials
	umask       int // -1: the agent's own
	fork        func(*exec.Cmd) error
	address     address
	limits      launcher.Limits
	sandbox     sandbox.Sandbox
	mechanisms  map[string]limits.Mechanism
	cgroup      *limits.Cgroup // nil for none
}

// plan makes the plan of a program.
func (s *Supervisor) plan(launch Launch, p *plan) error {
	pool := launch.Spec.Pool
	if pool.Protocol == spec.ProtocolNone {
		credentials, err := lookUpCredentials(pool.User, pool.Group)
		if err != nil {
			return err
		}
		if p.address, err = s.allocateAddress(credentials); err != nil {
			return err
		}
	}
	p.args = pool.Command
	err := p.complete(launch.Worker, launch.Spec, launch.binding)
	if err == nil {
		p.program, err = findProgram(pool.Command[0], p.dir, p.environ)
	}
	if err == nil {
		err = s.planLimits(launch, p)
	}
	if err != nil {
		s.releaseAddress(p.address)
		return err
	}
	if p.credentials == nil && os.Geteuid() == 0 {
		s.rootWorkers.Do(func() {
			s.logger.Warn("workers run as root, like the agent; set pool.user, or run the agent as another user",
				"worker", launch.Worker)
		})
	}
	return nil
}

// complete decides what follows from the spec, and from the key that the process is for, alone.
func (p *plan) complete(worker string, sp spec.Spec, b *Binding) error {
	var err error
	if p.credentials, err = lookUpCredentials(sp.Pool.User, sp.Pool.Group); err == nil && b != nil {
		sp, err = b.apply(sp, p.credentials)
	}
	if err != nil {
		return err
	}
	pool := sp.Pool
	p.dir = pool.Dir
	if pool.Dir != "" {
		if info, err := os.Stat(pool.Dir); err != nil || !info.IsDir() {
			return coded(CodeInvalid, err, "pool.dir %q is not a directory of this host", pool.Dir)
		}
	}
	if pool.Umask != "" {
		mask, err := strconv.ParseUint(pool.Umask, 8, 9)
		if err != nil {
			return coded(CodeInvalid, err, "pool.umask %q is not octal text such as 022", pool.Umask)
		}
		p.umask = int(mask)
	}
	ours := map[string]string{EnvWorker: worker, EnvIncarnation: p.cookie}
	var keep []string // directories that the program uses: it may write to them, and they stay visible
	switch pool.Protocol {
	case protocolTemplate: // not its cookie, which its forks would inherit
		ours = map[string]string{EnvTemplate: strconv.Itoa(framesFD)}
	case spec.ProtocolFrames:
		ours[EnvFD], ours[EnvOut] = strconv.Itoa(framesFD), strconv.Itoa(outFD)
	case spec.ProtocolNone:
		ours[EnvPort], ours[EnvSocket] = strconv.Itoa(p.address.port), p.address.socket
		keep = append(keep, p.address.dir)
	}
	box := sp.Sandbox
	p.sandbox = sandbox.Sandbox{
		Files: len(box.Read)+len(box.Write) > 0, ReadAll: len(box.Read) == 0, Read: box.Read,
		Write: slices.Concat(box.Write, keep), NoNetwork: box.Network == spec.NetworkNone, PrivateTmp: box.PrivateTmp,
		Keep: append(keep, pool.Dir), Dir: pool.Dir,
	}
	p.ours = ours
	p.environ, err = environment(pool, ours, os.LookupEnv)
	return err
}

// planLimits chooses the mechanisms of the launch's limits, and makes the cgroup if there is to be one.
func (s *Supervisor) planLimits(launch Launch, p *plan) error {
	planned, err := limits.NewPlan(launch.Spec.Limits, launch.Worker, s.host)
	if err != nil {
		return coded(CodeInvalid, err, "")
	}
	p.limits, p.mechanisms = planned.PerProcess, planned.Mechanisms
	if s.cgroups != nil { // also without limits: they can be set later, and a cgroup is killed at once
		name := fmt.Sprintf("%s.%d.%s", strings.ReplaceAll(launch.Worker, "/", "."), launch.Incarnation, tree.RandomHex(4))
		p.cgroup, err = s.cgroups.Create(name, planned.Cgroup)
		if needed := slices.Contains(slices.Collect(maps.Values(p.mechanisms)), limits.ByCgroup); err != nil && !needed {
			s.logger.Warn("cannot make a cgroup for a worker; its descendants are found one by one", "worker", launch.Worker,
				"error", err)
			err = nil
		}
	}
	return err
}

// command returns a command for launch with the worker's directory and environment, in a session of its own.
func (p plan) command(program string, args []string, dir string) *exec.Cmd {
	return &exec.Cmd{
		Path: program, Args: args, Dir: dir, Env: p.environ,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, WaitDelay: finalReadTimeout,
	}
}

// newKind makes an incarnation that has not started.
func (s *Supervisor) newKind(launch Launch) (p *Process, err error) {
	kind := launch.Spec.Pool.Kind
	if kind == spec.KindFunction {
		return s.newFunction(launch)
	}
	if launch.binding == nil && launch.Spec.StartsForKey() {
		return s.newVacancy(launch)
	}
	pl := &plan{
		cookie: tree.NewCookie(s.config.HostID, launch.Worker, launch.Incarnation, s.state.id), mark: tree.NewMark(),
		umask: -1, fork: s.config.fork, mechanisms: map[string]limits.Mechanism{},
	}
	if kind == spec.KindContainer {
		p, err = s.newContainer(launch, pl)
	} else if err = s.plan(launch, pl); err == nil {
		p = s.newProcess(launch, pl, launch.Spec.Limits)
		p.kind, p.template = program{p}, launch.template
	}
	if err != nil {
		pl.mark.Retire()
	}
	return p, err
}

// newProcess makes an incarnation without its kind.
func (s *Supervisor) newProcess(launch Launch, pl *plan, inForce spec.Limits) *Process {
	k := key{launch.Worker, launch.Incarnation}
	p := &Process{
		supervisor: s, name: k, plan: pl, members: &tree.MemberSet{}, launch: launch,
		wake: make(chan struct{}, 1), exited: make(chan struct{}),
	}
	p.inForce.Store(&limitsInForce{inForce, pl.mechanisms})
	p.spec = &p.launch.Spec
	p.launch.after, p.launch.template, p.launch.binding = nil, nil, nil
	if p.binding = launch.binding; p.binding != nil {
		p.used.Store(&Use{Key: p.binding.Owner, Since: time.Now().UTC()})
	}
	if last := launch.after; last != nil {
		p.head, p.number, p.before = last.head, last.number+1, last.Counts()
		p.logs, p.logger, p.unhealthy, p.done = last.logs, last.logger, last.unhealthy, last.done
		p.served, p.greeting = last.served, last.Greeting()
		return p
	}
	p.head, p.number, p.served = p, 1, &Served{}
	p.logs = s.logs.Output(launch.Worker, launch.Incarnation)
	p.logger = s.logger.With("worker", k.worker, "incarnation", k.incarnation)
	p.unhealthy, p.done, p.exceeded = make(chan string, 1), make(chan struct{}), make(chan struct{})
	return p
}

// spawn starts an incarnation. If it returns without error, the incarnation is in the supervisor's list and supervised
// until it ends; a process is also watched by the reaper and recorded in the state directory.
func (s *Supervisor) spawn(ctx context.Context, launch Launch) (*Process, error) {
	p, err := s.newKind(launch)
	if err != nil {
		return nil, launch.binding.hide(markExhausted(err), &launch.Spec)
	}
	if err := launch.binding.hide(markExhausted(p.kind.start(ctx)), &launch.Spec); err != nil {
		p.logs.Note("not started: " + err.Error())
		if launch.after == nil {
			p.logs.Close()
		}
		return nil, err
	}
	if launch.after == nil {
		s.supervise(p, s.live)
	}
	return p, nil
}

// isTemplate reports whether the process never serves: others are its forks.
func (p *Process) isTemplate() bool { return p.spec.Pool.Protocol == protocolTemplate }

// supervise lists a process in s.live or s.templateProcesses until it has ended.
func (s *Supervisor) supervise(p *Process, in map[key]*Process) {
	s.mu.Lock()
	in[p.key()] = p
	s.mu.Unlock()
	s.processes.Go(func() {
		for p != nil {
			p = p.supervise()
		}
	})
}

// kind is what runs one incarnation. Its Process decides when it starts and stops, speaks the protocol, and classifies
// its end; the kind carries that out. There is one for each value of pool.kind, and the tests of kind_test.go hold for
// all of them.
type kind interface {
	// start runs the incarnation, and opens the Process's connection unless its protocol is none. If it fails, nothing is
	// left to release. A fork waits for its turn until ctx ends.
	start(ctx context.Context) error
	// wait returns once the incarnation has exited, whether or not stop was called.
	wait()
	// stop asks the incarnation to end, or with force ends it. It does not block, and may be called again, with force too.
	stop(force bool)
	// end ends what an incarnation that has exited left behind, and returns how it ended. It is called once, after wait,
	// or when stop with force has not ended the incarnation within killLimit.
	end() ending
	// release returns what the incarnation held of this host; not if end could not end all of it.
	release()
	// probe is a health check of another kind than rpc.
	probe(ctx context.Context) error
}

// ending is how an incarnation ended.
type ending struct {
	code   int // -1 if unknown
	signal syscall.Signal
	left   tree.KillReport

	inAgent bool   // there was no process that had a code and a signal for others to see
	status  string // of an end within the agent that nothing has cut
	failure string // why the incarnation failed, if anything is known in addition to the code
	note    string // what else the reason should say
}
