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
	By string `json:"by" default:"none" rule:"none|key|use"`
	// Idle and MaxLifetime end a process of a key that has not been used for so long, or is so old; 0 is no lifetime.
	Idle        Duration `json:"idle" default:"5m"`
	MaxLifetime Duration `json:"max_lifetime" rule:"optional"`
	// MaxPerKey bounds the processes of one key on a host.
	MaxPerKey int `json:"max_per_key" default:"1" rule:"1.."`
	// Spares are how many workers a host keeps without a key, of which it has one more at least: so many idle keys give
	// way before another one comes. Processes that start for their key need none.
	Spares int `json:"spares" default:"1" rule:"0.."`
	// Env are variables of a key's process, and where each comes from: EnvKey, EnvHeader and the name of a header, or
	// EnvFile and a path that may hold KeyMark.
	Env map[string]string `json:"env"`
}

// Sources of isolation.env, and the mark in the place of which paths hold the key.
const (
	EnvKey    = "key"
	EnvHeader = "header:"
	EnvFile   = "file:"
	KeyMark   = "{key}"
	// PrincipalMark is the key in a path of mcp.env.
	PrincipalMark = "{principal}"
)

// StartsForKey reports whether a process starts only when its key comes, since it is started with something of the key.
func (s *Spec) StartsForKey() bool { return len(s.KeyEnv()) > 0 || s.keyInPaths() }

// IsolatedBy is isolation.by, IsolateUse for an MCP server with a process for each request, or IsolateKey for one with
// something of its client: its principal is the key.
func (s *Spec) IsolatedBy() string {
	switch {
	case s.MCP.Mode == MCPRequest:
		return IsolateUse
	case s.MCP.Mode == MCPSession && s.StartsForKey():
		return IsolateKey
	}
	return s.Isolation.By
}

// KeyEnv is isolation.env, or what mcp.env is as such.
func (s *Spec) KeyEnv() map[string]string {
	if len(s.MCP.Env) == 0 {
		return s.Isolation.Env
	}
	env := make(map[string]string, len(s.MCP.Env))
	for name, source := range s.MCP.Env {
		env[name] = strings.ReplaceAll(source, PrincipalMark, KeyMark)
	}
	return env
}

// MaxPerKey is isolation.max_per_key; a client may have as many sessions of MCP as there are workers.
func (s *Spec) MaxPerKey() int {
	if s.MCP.On() {
		return maxWorkers
	}
	return max(1, s.Isolation.MaxPerKey)
}

func (s *Spec) keyInPaths() bool {
	marked := func(path string) bool { return strings.Contains(path, KeyMark) }
	return marked(s.Pool.Dir) || slices.ContainsFunc(s.Sandbox.Read, marked) ||
		slices.ContainsFunc(s.Sandbox.Write, marked)
}

// EnvHeaders are the names of the headers that KeyEnv takes values from, in lower case and in order.
func (s *Spec) EnvHeaders() (names []string) {
	for _, source := range s.KeyEnv() {
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
	if (s.keyInPaths() || slices.ContainsFunc(slices.Collect(maps.Values(s.KeyEnv())), inFile)) &&
		!pathKey.MatchString(key) {
		return "it becomes a part of a path ({key}), so it may have 1 to 128 of the characters A-Z a-z 0-9 _ @ + = - and, " +
			"not as the first, a dot"
	}
	return ""
}
