package spec

import (
	"reflect"
	"strings"

	"github.com/tempool/tempool/internal/redact"
)

const (
	commandAllowed  = `the program and its arguments, such as ["python3", "worker.py"]`
	imageAllowed    = `the name of an image, such as "localhost/model:1"`
	functionAllowed = `the name of a function that an agent registers, such as "thumbnail": 1 to 63 characters of a-z, ` +
		`0-9, _ and -, the first a letter or digit`
)

// Program names what a worker runs, for people, with Hidden in place of what may be secret.
func (p Pool) Program() string {
	command := hideArguments(p.Command)
	switch p.Kind {
	case KindContainer:
		command = append([]string{"image", redact.Text(p.Image)}, command...)
	case KindFunction:
		return "function " + p.Function
	}
	return strings.Join(command, " ")
}

// foreignKeys are the keys that a kind does not know.
var foreignKeys = map[string][]string{
	KindProcess: {"pool.function", "pool.image", "pool.run_args"},
	KindContainer: { // set by run_args, or requires an address or a process of the host
		"pool.function", "pool.dir", "pool.user", "pool.group", "pool.umask", "pool.on_suspend", "health.kind",
		"limits.open_files", "limits.cpu_time", "limits.cpu_affinity", "limits.cpu_affinity_each", "limits.nice",
		"limits.oom_score_adj",
		"sandbox.read", "sandbox.write", "sandbox.network", "sandbox.private_tmp", "resources.allocation",
		"resources.memory_budget", "resources.cpu_budget", "start.fork", "isolation.by",
	},
	KindFunction: { // it is not a process, so it has nothing that the system manages per process
		"pool.command", "pool.image", "pool.run_args", "pool.protocol", "pool.framing", "pool.env", "pool.env_from",
		"pool.env_file",
		"pool.dir", "pool.user", "pool.group", "pool.umask", "pool.on_suspend",
		"health.kind", "health.memory_bands", "health.cpu_bands", "health.calls_bands", "rotation.max_memory",
		"prediction.window", "prediction.horizon",
		"limits.memory", "limits.cpu", "limits.open_files", "limits.processes", "limits.cpu_time", "limits.cpu_affinity",
		"limits.cpu_affinity_each",
		"limits.nice", "limits.oom_score_adj", "sandbox.read", "sandbox.write", "sandbox.network",
		"sandbox.private_tmp", "resources.allocation", "resources.memory_budget", "resources.cpu_budget", "start.fork",
		"isolation.by",
	},
}

// kindConflicts are the keys that a kind needs, and those that it does not know.
var kindConflicts = func() []conflict {
	all := []conflict{
		{"pool.command", "", func(s *Spec) (string, string) {
			return "", problemIf(s.Pool.Kind == KindProcess && len(s.Pool.Command) == 0, "is missing")
		}, commandAllowed},
		clash("pool.image", "pool.kind", func(s *Spec) bool { return s.Pool.Image == "" && s.Pool.Kind == KindContainer },
			"is missing: pool.kind = {with} needs an image", imageAllowed),
		clash("pool.protocol", "pool.kind", func(s *Spec) bool { return isPlain(s) && s.Pool.Kind == KindContainer },
			"{value} is not supported with pool.kind = {with}", `"frames" or "jsonrpc" with that kind`),
		clash("pool.function", "pool.kind",
			func(s *Spec) bool { return s.Pool.Function == "" && s.Pool.Kind == KindFunction },
			"is missing: pool.kind = {with} needs a function", functionAllowed),
	}
	for _, kind := range []string{KindProcess, KindContainer, KindFunction} {
		for _, key := range foreignKeys[kind] {
			all = append(all, foreignKey(kind, key))
		}
	}
	return all
}()

// foreignKey is the conflict of a kind with a key that it does not know. The key's default, and its zero value, are no
// mention of it.
func foreignKey(kind, key string) conflict {
	return clash(key, "pool.kind", func(s *Spec) bool {
		return s.Pool.Kind == kind && !keyByName[key].value(s).IsZero() && !hasDefault(s, key)
	}, "does not apply to pool.kind = {with}; remove it", "")
}

// hasDefault reports whether a key has its default. An empty list or table equals a nil one.
func hasDefault(s *Spec, key string) bool {
	a, b := keyByName[key].value(s), keyByName[key].value(&defaults)
	if (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
