package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

const (
	// engineName is the program of the container engine. Docker cannot pass the descriptors of the protocol frames to a
	// container.
	engineName = "podman"
	// engineTimeout bounds the removal of containers, with its further attempts.
	engineTimeout = 20 * time.Second

	labelState       = "tempool.state" // the id of the state directory
	labelWorker      = "tempool.worker"
	labelIncarnation = "tempool.incarnation"
)

// container is the kind "container": the engine's client is a program of this host, and passes descriptors on to the
// container. The container's processes descend from the client, so they carry its mark: they are found, measured,
// signalled and killed like those of any program.
type container struct {
	program
	engine, name string
	variables    string // the file of the worker's environment
	content      []byte // of the file
}

func findEngine() (string, error) {
	path, err := exec.LookPath(engineName)
	if err == nil {
		return path, nil
	}
	alone := ""
	if _, failed := exec.LookPath("docker"); failed == nil {
		alone = " (docker, which is there, cannot pass descriptors to a container)"
	}
	return "", coded(CodeInvalid, err,
		"pool.kind = %q needs %s in the PATH of the agent%s; install it, or place the pool by a label of hosts that have it",
		spec.KindContainer, engineName, alone)
}

// newContainer makes an incarnation that has not started.
func (s *Supervisor) newContainer(launch Launch, pl *plan) (*Process, error) {
	engine, err := findEngine()
	if err != nil {
		return nil, err
	}
	pl.program = engine
	if err := pl.complete(launch.Worker, launch.Spec, nil); err != nil {
		return nil, err
	}
	pool := launch.Spec.Pool
	name := fmt.Sprintf("tempool-%s-%d-%s", strings.ReplaceAll(launch.Worker, "/", "-"), launch.Incarnation,
		tree.RandomHex(4))
	variables, err := containerVariables(pl.environ)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.state.path, variablesPrefix+name)
	pl.environ = append(engineEnvironment(), EnvIncarnation+"="+pl.cookie)
	// the agent's proxies are not the container's
	pl.args = append([]string{engineName, "run", "--http-proxy=false"}, pool.RunArgs...)
	pl.args = append(pl.args, "--env-file", file, "--pidfile", file+pidSuffix, "--interactive", "--rm", "--name", name,
		"--label", labelState+"="+s.state.id, "--label", labelWorker+"="+launch.Worker,
		"--label", labelIncarnation+"="+strconv.FormatInt(launch.Incarnation, 10))
	if pool.Protocol == spec.ProtocolFrames {
		pl.args = append(pl.args, "--preserve-fds=2")
	}
	pl.passLimits(launch.Spec.Limits)
	pl.args = append(append(pl.args, pool.Image), pool.Command...)
	inForce := launch.Spec.Limits
	inForce.OpenFiles = 0 // the engine's matter
	p := s.newProcess(launch, pl, inForce)
	p.kind = &container{program: program{p}, engine: engine, name: name, variables: file, content: variables}
	return p, nil
}

// start writes the file that the engine's client reads, and runs the client.
func (c *container) start(ctx context.Context) error {
	if err := atomicfile.Write(c.variables, c.content, 0o600); err != nil {
		c.plan.mark.Retire()
		return fmt.Errorf("%w: write the environment of a container: %w", ErrExhausted, err)
	}
	err := c.program.start(ctx)
	if err != nil {
		_ = os.Remove(c.variables)
	}
	return err
}

// passLimits has the engine enforce the limits.
func (p *plan) passLimits(l spec.Limits) {
	pass := func(key, option, value string, set bool) {
		if set {
			p.args = append(p.args, option, value)
			p.mechanisms[key] = limits.ByEngine
		}
	}
	pass("memory", "--memory", fmt.Sprintf("%db", int64(l.Memory)), l.Memory > 0)
	pass("cpu", "--cpus", strconv.FormatFloat(l.CPU, 'f', -1, 64), l.CPU > 0)
	pass("processes", "--pids-limit", strconv.Itoa(l.Processes), l.Processes > 0)
	if l.CallsPerMinute > 0 {
		p.mechanisms["calls_per_minute"] = limits.ByGateway
	}
}

// stop sends SIGTERM to the container's first process. Its client passes signals on, but not in the container's first
// moments, and ends then; so it gets the signal only if there is no container yet.
func (c *container) stop(force bool) {
	if force {
		c.program.stop(true)
		return
	}
	text, _ := os.ReadFile(c.variables + pidSuffix)
	pid, _ := strconv.Atoi(string(text))
	first, found := tree.Identify(pid)
	if !found || !contain([]*Process{c.Process}, pid) {
		first = c.root
	}
	if err := tree.Signal(first, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.logger.Warn("cannot ask a container to stop", "container", c.name, "error", err)
	}
}

// end removes the container, which outlives the engine's client if that was killed, or asked to stop before it started
// the container. Then it ends what is left of the client's tree. A tree that is to be killed does not wait for the
// engine, which may hang.
func (c *container) end() ending {
	if t := c.currentTermination(); t.killed() || t.graceExpired {
		c.killTree()
	}
	c.closeConn(finalReadTimeout) // its removal may take longer, and the gateway still sends calls
	if err := removeContainers(c.engine, "--ignore", c.name); err != nil {
		c.logger.Error("cannot remove a container", "container", c.name, "error", err)
	} else {
		_ = os.Remove(c.variables + pidSuffix) // absent if there never was a container
		if err := os.Remove(c.variables); err != nil {
			c.logger.Warn("cannot remove the environment of a container", "error", err)
		}
	}
	e := c.program.end()
	switch {
	case e.code == codeEngineFailed:
		e.note = engineName + " could not run the container"
	case e.code == codeKilled && c.Limits().Memory > 0:
		e.note = "the container was killed, perhaps for exceeding limits.memory"
	}
	return e
}

// Exit codes of the engine's client.
const (
	codeEngineFailed = 125
	codeKilled       = 128 + 9
)

func (c *container) probe(context.Context) error {
	return coded(CodeInvalid, nil, "a container supports no probe of kind %q, only of %q", c.spec.Health.Kind,
		spec.HealthRPC)
}

// sweepContainers removes the containers that earlier supervisors on this state directory have left, as the files of
// their environments say.
func (s *Supervisor) sweepContainers() error {
	entries, err := os.ReadDir(s.state.path)
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), variablesPrefix) })
	if err != nil || len(entries) == 0 {
		return err
	}
	path, err := findEngine()
	if err != nil {
		return err
	}
	if err := removeContainers(path, "--filter", "label="+labelState+"="+s.state.id); err != nil {
		return err
	}
	for _, entry := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(s.state.path, entry.Name())))
	}
	return err
}

// removeAttempts is how often a removal is tried: the first attempt fails if the engine has not noticed yet that the
// container was killed.
const removeAttempts = 3

// removeContainers kills and removes containers, within engineTimeout.
func removeContainers(engine string, which ...string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	arguments := append([]string{"rm", "--force", "--time", "0"}, which...)
	for range removeAttempts {
		cmd := exec.CommandContext(ctx, engine, arguments...)
		output := &limitedBuffer{remaining: maxProbeOutput}
		cmd.Env = engineEnvironment()
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = output, output, time.Second
		if err = tree.StartChild(cmd); err == nil {
			err = tree.WaitChild(cmd)
		}
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s %s: %w: %s", engineName, strings.Join(arguments, " "), err, output.text())
	}
	return err
}

// variablesPrefix begins the names of the files in the state directory that hold the environments of containers. Each
// stays until its container is removed. Beside it, with pidSuffix, the engine names the container's first process.
const (
	variablesPrefix = "environment-"
	pidSuffix       = ".pid"
)

// maxVariable bounds a variable of a container, in bytes; the engine reads files by lines of at most 64 KiB.
const maxVariable = 60_000

// notForEngine are variables of the agent that a client of the engine would take for its own, or pass on: it must not
// report to the agent's service manager about containers, nor take the agent's sockets.
var notForEngine = []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS",
	"LISTEN_FDNAMES", EnvIncarnation}

// engineEnvironment is the environment of every command of the engine: the agent's own, so that all of them use the
// same storage and settings.
func engineEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(notForEngine, name)
	})
}

// containerVariables returns the file from which the engine reads the environment of a container. Its variables are
// neither among the arguments of the engine's client, which are for everybody to read, nor in the client's environment,
// which they would configure.
func containerVariables(environ []string) ([]byte, error) {
	var file strings.Builder
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.ContainsAny(entry, "\r\n") || strings.TrimLeft(name, " \t#") != name || len(entry) > maxVariable {
			return nil, coded(CodeInvalid, nil,
				"the variable %.100q cannot be passed to a container: it has a line break, a name that begins with a space or #, "+
					"or more than %d bytes; mount a file with pool.run_args instead",
				name, maxVariable)
		}
		file.WriteString(entry + "\n")
	}
	return []byte(file.String()), nil
}
