package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/term"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// clientConfig is what a pool can be made of in the configuration of an MCP client.
type clientConfig struct {
	Claude map[string]clientServer `json:"mcpServers" toml:"-"` // of Claude, Cursor, Cline and others
	VSCode map[string]clientServer `json:"servers" toml:"-"`
	Codex  map[string]clientServer `json:"-" toml:"mcp_servers"`
	Inputs []clientInput           `json:"inputs" toml:"-"` // of VS Code
}

// all are the servers by name.
func (c clientConfig) all() map[string]clientServer {
	all := map[string]clientServer{}
	for _, servers := range []map[string]clientServer{c.Claude, c.VSCode, c.Codex} {
		maps.Copy(all, servers)
	}
	return all
}

// clientServer is an MCP server as a client is configured with it.
type clientServer struct {
	Command  string            `json:"command" toml:"command"`
	Args     []string          `json:"args" toml:"args"`
	Env      map[string]string `json:"env" toml:"env"`
	EnvVars  []string          `json:"-" toml:"env_vars"`
	EnvFile  string            `json:"envFile" toml:"-"`
	Dir      string            `json:"cwd" toml:"cwd"`
	Type     string            `json:"type" toml:"-"`
	URL      string            `json:"url" toml:"url"`
	Disabled bool              `json:"disabled" toml:"-"`
	Enabled  *bool             `json:"-" toml:"enabled"`
	Tools    []string          `json:"-" toml:"enabled_tools"`
	NoTools  []string          `json:"-" toml:"disabled_tools"`
}

// clientInput is what VS Code asks its user for.
type clientInput struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Password    bool   `json:"password"`
	Default     string `json:"default"`
}

// skipped is why no pool is made of the server, "" if one is.
func (s clientServer) skipped() string {
	switch {
	case s.Disabled || s.Enabled != nil && !*s.Enabled:
		return "it is disabled"
	case s.URL != "" || s.Type != "" && s.Type != "stdio":
		return "it is remote, so its clients can use it directly"
	}
	return ""
}

// readClientConfig reads a configuration, in TOML or in JSON with comments. Errors name the position.
func readClientConfig(path string) (c clientConfig, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return c, api.Errorf(api.CodeInvalid,
			"read the client's configuration: %w; name a file that exists and that you may read", err)
	}
	line, column := 1, 1
	if filepath.Ext(path) == ".toml" {
		err = toml.Unmarshal(data, &c)
		if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column = decode.Position()
		}
	} else {
		data = plainJSON(data)
		err = json.Unmarshal(data, &c)
		var offset int64
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset
		} else if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			offset, err = mismatch.Offset, fmt.Errorf("%s is a %s", mismatch.Field, mismatch.Value)
		}
		before := string(data[:max(0, offset-1)])
		line, column = strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n")
	}
	if err != nil {
		return c, api.Errorf(api.CodeInvalid, "%s:%d:%d: %w; a client's configuration is JSON, or TOML in a file *.toml",
			path, line, column, err)
	}
	if len(c.all()) == 0 {
		return c, api.Errorf(api.CodeInvalid, "%s:1:1: there is no server under mcpServers, servers or [mcp_servers]", path)
	}
	return c, nil
}

// beyondJSON are strings, comments, and commas before a closing bracket, with whole comments between.
var beyondJSON = regexp.MustCompile(
	`(?s)"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?:\s|//[^\n]*\n|/\*(?:[^*]|\*+[^*/])*\*+/)*[\]}]`)

// plainJSON blanks comments and trailing commas, so that positions stay.
func plainJSON(data []byte) []byte {
	return beyondJSON.ReplaceAllFunc(data, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		blank := slices.Clone(found)
		for i, b := range blank {
			if last := i == len(blank)-1; b != '\n' && !(last && found[0] == ',') {
				blank[i] = ' '
			}
		}
		return blank
	})
}

// importer makes the specs of pools of the servers in configurations, one after another.
type importer struct {
	*app
	mode            string
	answers         map[string]string // by the id of the input
	lines           *bufio.Reader     // of the standard input
	path, workspace string            // of the configuration
	inputs          []clientInput     // that it declares
}

// importedPool is a pool made of a server, and the variables of its env_file.
type importedPool struct {
	Pool string            `json:"pool"`
	File string            `json:"file"`
	text string            // of the file
	env  map[string]string // "" is not in the file
}

// passed are the variables that client programs pass on to servers, many of which need a home.
var passed = []string{"HOME", "LOGNAME", "SHELL", "USER"}

// pool makes the pool of a server.
func (m *importer) pool(name string, server clientServer) (p importedPool, err error) {
	s := spec.Default()
	s.Pool.Name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-_")
	s.Pool.Protocol, s.MCP.Mode = spec.ProtocolJSONRPC, m.mode
	if m.mode != spec.MCPRequest { // which has one request at a process
		s.Pool.MaxInflight = 16
	}
	s.Pool.EnvFrom = slices.Concat(passed, server.EnvVars)
	if server.Command == "" {
		return p, errors.New("has no command")
	}
	private := false
	for _, word := range append([]string{server.Command}, server.Args...) {
		text, secret, err := m.expand(word)
		if err != nil {
			return p, err
		}
		s.Pool.Command, private = append(s.Pool.Command, text), private || secret
	}
	if private {
		m.warn(name + ": values of variables are now in pool.command, which the pool's history keeps; pass secrets by env")
	}
	if program := filepath.Base(s.Pool.Command[0]); program == "uvx" || program == "npx" {
		m.warn(name + ": " + program + " may download the program at each start; install it and name its own command instead")
	}
	s.MCP.Tools, s.MCP.ToolsDeny = append(s.MCP.Tools, server.Tools...), append(s.MCP.ToolsDeny, server.NoTools...)
	dir, _, err := m.expand(server.Dir)
	if err != nil {
		return p, err
	}
	s.Pool.Dir = m.absolute(dir)
	if p.env, err = m.variables(server, &s); err != nil {
		return p, err
	}
	if len(p.env) > 0 {
		s.Pool.EnvFile = s.Pool.Name + ".env"
	}
	s.Pool.EnvFrom = slices.Compact(slices.Sorted(slices.Values(s.Pool.EnvFrom)))
	if err := s.Validate(); err != nil {
		return p, err
	}
	p.Pool, p.File, p.text = s.Pool.Name, s.Pool.Name+".toml",
		fmt.Sprintf("# Made by tempool mcp import of server %q in %s\n", name, m.path)+s.Text()
	return p, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9_-]+`)

func (m *importer) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(m.workspace, path)
}

// variables are those of a server's envFile and env. One that its client takes over from its own environment under the
// same name becomes one of env_from, which wins over its default in the file.
func (m *importer) variables(server clientServer, s *spec.Spec) (map[string]string, error) {
	variables := map[string]string{}
	if server.EnvFile != "" {
		path, _, err := m.expand(server.EnvFile)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(m.absolute(path))
		if err != nil {
			return nil, fmt.Errorf("envFile: %w", err)
		}
		if variables, err = spec.ParseEnv(string(text)); err != nil {
			return nil, fmt.Errorf("envFile %s: %w", path, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(server.Env)) {
		if whole := reference.FindStringSubmatch(server.Env[name]); whole != nil && m.expands() &&
			whole[0] == server.Env[name] {
			if from, fallback, given := referredVariable(whole[1]); from == name {
				s.Pool.EnvFrom = append(s.Pool.EnvFrom, name)
				if delete(variables, name); given {
					variables[name] = fallback
				}
				continue
			}
		}
		text, _, err := m.expand(server.Env[name])
		if err != nil {
			return nil, fmt.Errorf("env.%s: %w", name, err)
		}
		variables[name] = text
	}
	return variables, nil
}

var (
	reference    = regexp.MustCompile(`\$\{([^}]*)\}`)
	variableForm = regexp.MustCompile(`^(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-)?((?s).*)$`)
)

// referredVariable is the environment variable that a reference names, "" for none, and what to take if it is not set.
func referredVariable(text string) (name, fallback string, given bool) {
	found := variableForm.FindStringSubmatch(text)
	if found == nil || found[2] == "" && found[3] != "" {
		return "", "", false
	}
	return found[1], found[3], found[2] != ""
}

// expands reports whether the client expands references: Codex does not.
func (m *importer) expands() bool { return filepath.Ext(m.path) != ".toml" }

// expand replaces the references in a text. It reports whether the values of variables or inputs are in it now.
func (m *importer) expand(text string) (expanded string, private bool, err error) {
	if !m.expands() {
		return text, false, nil
	}
	expanded = reference.ReplaceAllStringFunc(text, func(found string) string {
		value, secret, failed := m.value(found[2 : len(found)-1])
		err, private = errors.Join(err, failed), private || secret
		return value
	})
	return expanded, private, err
}

func (m *importer) value(name string) (value string, private bool, err error) {
	switch input, isInput := strings.CutPrefix(name, "input:"); {
	case isInput:
		value, err = m.input(input)
		return value, true, err
	case name == "workspaceFolder":
		return m.workspace, false, nil
	case name == "workspaceFolderBasename":
		return filepath.Base(m.workspace), false, nil
	case name == "userHome":
		value, err = os.UserHomeDir()
		return value, false, err
	}
	from, fallback, given := referredVariable(name)
	value, set := os.LookupEnv(from)
	switch {
	case from == "":
		return "", false, fmt.Errorf("${%s} is no variable that tempool knows", name)
	case !set && !given:
		return "", false, fmt.Errorf("${%s}: the variable %s is not set; set it for tempool mcp import", name, from)
	case !set:
		return fallback, false, nil
	}
	return value, true, nil
}

// input is the answer to a question of VS Code, which is asked once; without a terminal, each answer is a line of the
// standard input.
func (m *importer) input(id string) (answer string, err error) {
	if answer, found := m.answers[id]; found {
		return answer, nil
	}
	i := slices.IndexFunc(m.inputs, func(input clientInput) bool { return input.ID == id })
	if i < 0 {
		return "", fmt.Errorf("${input:%s} is not among inputs", id)
	}
	input := m.inputs[i]
	fmt.Fprint(m.err, printable(cmp.Or(input.Description, id)), ": ")
	if file, isFile := m.in.(*os.File); input.Password && isFile && term.IsTerminal(int(file.Fd())) {
		var secret []byte
		secret, err = term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(m.err)
		answer = string(secret)
	} else {
		answer, err = m.lines.ReadString('\n')
	}
	if err != nil {
		return "", fmt.Errorf("${input:%s} has no answer; give a line for each on the standard input: %w", id, err)
	}
	m.answers[id] = cmp.Or(strings.TrimSpace(answer), input.Default)
	return m.answers[id], nil
}
