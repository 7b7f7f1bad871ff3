package process

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tempool/tempool/process/launcher"
	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// Binding is whose process starts in the place of a vacancy, and what the spec makes its variables and paths of.
type Binding struct {
	Owner   string            `json:"owner"` // as Used returns it
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers,omitempty"` // of the call, by their lower-case names
}

// maxFileValue bounds pool.env_file, and a value of isolation.env that comes from a file, in bytes.
const maxFileValue = 64 << 10

// apply returns the spec with the key's variables and paths. A pool.dir of the key is made if its parent exists, for
// the worker's user alone.
func (b *Binding) apply(sp spec.Spec, credentials *launcher.Credentials) (spec.Spec, error) {
	if problem := sp.CheckPathKey(b.Key); problem != "" {
		return sp, coded(CodeInvalid, nil, "the key cannot be used: %s", problem)
	}
	env := maps.Clone(sp.Pool.Env)
	if env == nil {
		env = map[string]string{}
	}
	for name, source := range sp.KeyEnv() {
		header, isHeader := strings.CutPrefix(source, spec.EnvHeader)
		switch file, isFile := strings.CutPrefix(source, spec.EnvFile); {
		case isFile:
			value, err := readValue(b.in(file))
			if err != nil {
				return sp, coded(CodeInvalid, err, "isolation.env.%s", name)
			}
			env[name] = value
		case isHeader:
			env[name] = b.Headers[strings.ToLower(header)]
		default:
			env[name] = b.Key
		}
		if strings.ContainsRune(env[name], 0) {
			return sp, coded(CodeInvalid, nil, "isolation.env.%s contains a NUL character", name)
		}
	}
	dir := b.in(sp.Pool.Dir)
	if dir != sp.Pool.Dir {
		if err := makeDir(dir, credentials); err != nil {
			return sp, coded(CodeInvalid, err, "make the folder of a key (pool.dir)")
		}
	}
	sp.Pool.Env, sp.Pool.Dir = env, dir
	sp.Sandbox.Read, sp.Sandbox.Write = b.inAll(sp.Sandbox.Read), b.inAll(sp.Sandbox.Write)
	return sp, nil
}

func (b *Binding) in(path string) string { return strings.ReplaceAll(path, spec.KeyMark, b.Key) }

func (b *Binding) inAll(paths []string) []string {
	paths = slices.Clone(paths)
	for i := range paths {
		paths[i] = b.in(paths[i])
	}
	return paths
}

// hide has KeyMark in place of the key in paths that the error names: others read it.
func (b *Binding) hide(err error, sp *spec.Spec) error {
	if b == nil || err == nil {
		return err
	}
	paths := append(slices.Collect(maps.Values(sp.KeyEnv())), sp.Pool.Dir)
	paths = slices.Concat(paths, sp.Sandbox.Read, sp.Sandbox.Write)
	text := err.Error()
	for _, path := range paths {
		path = strings.TrimPrefix(path, spec.EnvFile)
		text = strings.ReplaceAll(text, b.in(path), path)
	}
	return hiddenError{err, text}
}

type hiddenError struct {
	error
	text string
}

func (e hiddenError) Error() string { return e.text }
func (e hiddenError) Unwrap() error { return e.error }

// readValue reads a file of at most maxFileValue bytes, without the end of its last line.
func readValue(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileValue+1))
	if err == nil && len(text) > maxFileValue {
		err = errors.New(path + " is larger than 64 KiB")
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), err
}

func makeDir(dir string, owner *launcher.Credentials) error {
	err := os.Mkdir(dir, 0o700)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil || owner == nil:
		return err
	}
	return os.Lchown(dir, int(owner.UID), int(owner.GID))
}

// vacancy is the kind of an incarnation of which no process runs, since it starts when its key comes: see Bind.
type vacancy struct {
	*Process
	left  chan struct{}
	leave sync.Once
}

func (v *vacancy) start(context.Context) error {
	v.startedAt = time.Now()
	return nil
}

func (v *vacancy) wait()                       { <-v.left }
func (v *vacancy) stop(bool)                   { v.leave.Do(func() { close(v.left) }) }
func (v *vacancy) release()                    {}
func (v *vacancy) probe(context.Context) error { return nil }

func (v *vacancy) end() ending {
	e := ending{status: "ended", inAgent: true}
	if t := v.currentTermination(); t.killed() || t.graceExpired {
		e.signal = syscall.SIGKILL
	}
	return e
}

// newVacancy makes an incarnation that no key has come to. What would fail for every key fails now.
func (s *Supervisor) newVacancy(launch Launch) (*Process, error) {
	pool := launch.Spec.Pool
	planned, err := limits.NewPlan(launch.Spec.Limits, launch.Worker, s.host)
	if err == nil {
		_, err = lookUpCredentials(pool.User, pool.Group)
	}
	var environ []string
	if err == nil {
		environ, err = environment(pool, nil, os.LookupEnv)
	}
	if err == nil && !strings.Contains(pool.Dir, spec.KeyMark) {
		_, err = findProgram(pool.Command[0], pool.Dir, environ)
	}
	if err != nil {
		return nil, err
	}
	p := s.newProcess(launch, &plan{
		cookie: tree.NewCookie(s.config.HostID, launch.Worker, launch.Incarnation, s.state.id), umask: -1,
		mechanisms: planned.Mechanisms,
	}, launch.Spec.Limits)
	p.kind = &vacancy{Process: p, left: make(chan struct{})}
	return p, nil
}

// Vacant reports whether the incarnation has no process: a key must come first, with Bind.
func (p *Process) Vacant() bool { return p.now().vacant() }

func (p *Process) vacant() bool {
	_, is := p.kind.(*vacancy)
	return is
}

// Bind starts a key's process in the place of a vacancy, and calls bound once it is ready, which Conn then is the
// connection of. If it does not become ready, bound gets the reason, and the incarnation is vacant again: a key with a
// wrong secret is no fault of the worker. bound is not called if the incarnation ends. Bind returns at once.
func (p *Process) Bind(b Binding, bound func(error)) {
	p.updateTermination(func(t *termination) {
		if !t.recycled {
			t.recycled, t.clean, t.binding = true, bound, &b
		}
	})
}
