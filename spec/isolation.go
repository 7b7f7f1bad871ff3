package spec

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Isolation configures who shares a process.
type Isolation struct {
	// By is one of the Isolate values.
	By string `json:"by" toml:"by"`
	// Idle and MaxLifetime end a process of a key that has not been used for so long, or is so old; 0 is no lifetime.
	Idle        Duration `json:"idle" toml:"idle"`
	MaxLifetime Duration `json:"max_lifetime" toml:"max_lifetime"`
	// MaxPerKey bounds the processes of one key on a host.
	MaxPerKey int `json:"max_per_key" toml:"max_per_key"`
	// Spares are how many workers a host keeps without a key, of which it has one more at least: so many idle keys give
	// way before another one comes. Processes that start for their key need none.
	Spares int `json:"spares" toml:"spares"`
	// Env are variables of a key's process, and where each comes from: EnvKey, EnvHeader and the name of a header, or
	// EnvFile and a path that may hold KeyMark.
	Env map[string]string `json:"env" toml:"env"`
}

// Sources of isolation.env, and the mark in the place of which paths hold the key.
const (
	EnvKey    = "key"
	EnvHeader = "header:"
	EnvFile   = "file:"
	KeyMark   = "{key}"
)

// StartsForKey reports whether a process starts only when its key comes, since it is started with something of the key.
func (s *Spec) StartsForKey() bool { return len(s.Isolation.Env) > 0 || s.keyInPaths() }

func (s *Spec) keyInPaths() bool {
	marked := func(path string) bool { return strings.Contains(path, KeyMark) }
	return marked(s.Pool.Dir) || slices.ContainsFunc(s.Sandbox.Read, marked) ||
		slices.ContainsFunc(s.Sandbox.Write, marked)
}

// EnvHeaders are the names of the headers that isolation.env takes values from, in lower case and in order.
func (s *Spec) EnvHeaders() (names []string) {
	for _, source := range s.Isolation.Env {
		if name, is := strings.CutPrefix(source, EnvHeader); is {
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// pathKey is a key that may be a part of a path.
var pathKey = regexp.MustCompile(`^[A-Za-z0-9_@+=-][A-Za-z0-9_@+=.-]{0,127}$`)

// CheckPathKey returns why the key cannot be a part of the paths that the spec makes of it, "" if it can or there are
// none.
func (s *Spec) CheckPathKey(key string) string {
	inFile := func(source string) bool {
		return strings.HasPrefix(source, EnvFile) && strings.Contains(source, KeyMark)
	}
	if (s.keyInPaths() || slices.ContainsFunc(slices.Collect(maps.Values(s.Isolation.Env)), inFile)) &&
		!pathKey.MatchString(key) {
		return "it becomes a part of a path ({key}), so it may have 1 to 128 of the characters A-Z a-z 0-9 _ @ + = - and, " +
			"not as the first, a dot"
	}
	return ""
}
