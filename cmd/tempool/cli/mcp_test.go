package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// writeConfig writes the configuration of a client into a folder of its own.
func writeConfig(t *testing.T, name, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	return path
}

func TestPoolsAreMadeOfTheConfigurationsOfClients(t *testing.T) {
	t.Setenv("IMPORT_PAT", "pat s3cret")
	claude := writeConfig(t, ".mcp.json", `{"other": [1], "mcpServers": {
		"My Files": {"command": "npx", "args": ["-y", "files", "${IMPORT_NONE:-/data}"], "autoApprove": ["read"]},
		"github": {"command": "./github", "cwd": "srv", "env": {
			"GITHUB_TOKEN": "${IMPORT_PAT}", "URL": "https://${IMPORT_NONE:-x}/", "KEY": "${KEY}", "MODE": "${MODE:-a\nb}",
			"N": "'$1\" \\n"}},
		"web": {"type": "http", "url": "https://example.com"}, "old": {"command": "x", "disabled": true}}}`)
	code := writeConfig(t, ".vscode/mcp.json", `{ // of VS Code
		/* asked */ "inputs": [{"type": "promptString", "id": "key", "password": true},],
		"servers": {"api": {"type": "stdio", "command": "${workspaceFolder}/api", "args": ["//no comment", /* a */ ",]" /* b */],
			// see [1]
			"env": {"KEY": "${input:key}", "A": "own"}, "envFile": "${workspaceFolder}/.env"},},}`)
	workspace := filepath.Dir(filepath.Dir(code))
	require.NoError(t, os.WriteFile(filepath.Join(workspace, ".env"), []byte("A=file\nB='b'\n"), 0o600))
	codex := writeConfig(t, "config.toml", "model = 'x'\n[mcp_servers.sub_agent]\ncommand = 'agent'\nargs = ['${HOME}']\n"+
		"env_vars = ['TOKEN']\nenabled_tools = ['a']\ndisabled_tools = ['b']\n"+
		"[mcp_servers.off]\ncommand='x'\nenabled = false\n")
	dir := t.TempDir()
	f := newFakeControlPlane()
	f.in = "k=1\n"
	r := ctl(t, f, "mcp", "import", claude, code, codex, "--dir", dir, "-o", "json")
	requireCode(t, ExitOK, r)
	got := decode[struct {
		Pools   []importedPool
		Skipped map[string]string
		Servers map[string]clientEntry `json:"mcpServers"`
	}](t, r)
	require.Len(t, got.Pools, 4)
	require.Equal(t, map[string]string{"web": "it is remote, so its clients can use it directly", "old": "it is disabled",
		"off": "it is disabled"}, got.Skipped)
	require.Equal(t, clientEntry{"http", "http://127.0.0.1:7460/mcp/my-files"}, got.Servers["my-files"])
	require.Contains(t, r.err, "My Files: npx may download")
	want := func(name, folder string, command, from []string) spec.Spec {
		s := spec.Default()
		s.Pool.Name, s.Pool.Command, s.Pool.Dir, s.Pool.Protocol = name, command, folder, spec.ProtocolJSONRPC
		s.Pool.MaxInflight, s.Pool.EnvFrom, s.MCP.Mode = 16, from, spec.MCPSession
		if name == "sub_agent" {
			s.MCP.Tools, s.MCP.ToolsDeny = []string{"a"}, []string{"b"}
		}
		return s
	}
	home := []string{"HOME", "LOGNAME", "SHELL", "USER"}
	for _, c := range []struct {
		spec spec.Spec
		env  map[string]string
	}{
		{want("my-files", filepath.Dir(claude), []string{"npx", "-y", "files", "/data"}, home), nil},
		{want("github", filepath.Join(filepath.Dir(claude), "srv"), []string{"./github"},
			[]string{"HOME", "KEY", "LOGNAME", "MODE", "SHELL", "USER"}),
			map[string]string{"GITHUB_TOKEN": "pat s3cret", "URL": "https://x/", "MODE": "a\nb", "N": `'$1" \n`}},
		{want("api", workspace, []string{workspace + "/api", "//no comment", ",]"}, home),
			map[string]string{"KEY": "k=1", "A": "own", "B": "b"}},
		{want("sub_agent", filepath.Dir(codex), []string{"agent", "${HOME}"},
			[]string{"HOME", "LOGNAME", "SHELL", "TOKEN", "USER"}), nil},
	} {
		file := filepath.Join(dir, c.spec.Pool.Name+".toml")
		if c.env != nil {
			c.spec.Pool.EnvFile = filepath.Join(dir, c.spec.Pool.Name+".env")
			text, err := os.ReadFile(c.spec.Pool.EnvFile)
			require.NoError(t, err)
			env, err := spec.ParseEnv(string(text))
			require.NoError(t, err)
			require.Equal(t, c.env, env)
			info, err := os.Stat(c.spec.Pool.EnvFile)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
		}
		s, err := spec.Load(file)
		require.NoError(t, err)
		require.Equal(t, c.spec, s)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), "s3cret")
	}
	r = fail(t, newFakeControlPlane(), "mcp", "import", claude, "--dir", dir)
	require.Contains(t, r.err, "exists; remove it, or name another folder with --dir")
}

func TestServersAreImportedInEachMode(t *testing.T) {
	for _, mode := range []string{spec.MCPSession, spec.MCPShared, spec.MCPRequest} {
		dir := t.TempDir()
		succeed(t, newFakeControlPlane(), "mcp", "import",
			writeConfig(t, "x.json", `{"mcpServers": {"a": {"command": "x"}}}`), "--dir", dir, "--mode", mode)
		s, err := spec.Load(filepath.Join(dir, "a.toml"))
		require.NoError(t, err)
		require.Equal(t, mode, s.MCP.Mode)
	}
}

func TestWhatCannotBeImportedIsRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"{\n  \"mcpServers\": {\n    oops}}", "x.json:3:5: invalid character 'o'"},
		{"{\n  \"mcpServers\": {\"a\": {\"command\": 3}}}", "x.json:2:35: mcpServers.command is a number"},
		{`{"mcpServers": {}}`, "there is no server under"},
		{`{"mcpServers": {"a": {}}}`, "x.json: server a: has no command"},
		{`{"mcpServers": {"a": {"command": "${nonsense:x}"}}}`, "${nonsense:x} is no variable that tempool knows"},
		{`{"mcpServers": {"a": {"command": "${IMPORT_UNSET}"}}}`, "the variable IMPORT_UNSET is not set"},
		{`{"servers": {"a": {"command": "${input:k}"}}}`, "${input:k} is not among inputs"},
		{`{"inputs": [{"id": "k"}], "servers": {"a": {"command": "${input:k}"}}}`, "${input:k} has no answer; give a line for each"},
		{`{"mcpServers": {"a b": {"command": "x"}, "A-b": {"command": "x"}}}`, "would have the name of that of A-b in"},
		{`{"mcpServers": {"a": {"command": "x", "env": {"TEMPOOL_A": "${TEMPOOL_A}"}}}}`, "is set by Tempool"},
		{`{"mcpServers": {"b": {"command": "x"}}}`, "there is no server a in"},
	} {
		args := []string{"mcp", "import", writeConfig(t, "x.json", c[0]), "--dir", t.TempDir()}
		if strings.Contains(c[1], "no server a") {
			args = append(args, "--only", "a")
		}
		require.Contains(t, fail(t, newFakeControlPlane(), args...).err, c[1])
	}
	r := fail(t, newFakeControlPlane(), "mcp", "import", writeConfig(t, "x.toml", "[mcp_servers.a]\ncommand = 'x\n"))
	require.Contains(t, r.err, "x.toml:2:")
}

func FuzzPlainJSON(f *testing.F) {
	f.Add("{\"a\": \"//\\\"\", // x\n \"b\": [1, /* , */ ], }", "")
	f.Add(`{"a": ["-y", "b"], "c": 1}`, "see [1]*")
	f.Fuzz(func(t *testing.T, text, comment string) {
		plain := plainJSON([]byte(text))
		require.Len(t, plain, len(text), "positions stay")
		require.Equal(t, strings.Count(text, "\n"), strings.Count(string(plain), "\n"))
		if json.Valid([]byte(text)) {
			require.Equal(t, text, string(plain))
			var want, commented, got bytes.Buffer
			require.NoError(t, json.Compact(&want, plain))
			comment = strings.NewReplacer("/", "", "\n", "").Replace(comment)
			require.NoError(t, json.Indent(&commented, plain, "//"+comment+"\n", "/*"+comment+"*/"))
			require.NoError(t, json.Compact(&got, plainJSON(commented.Bytes())), commented.String())
			require.Equal(t, want.String(), got.String(), "the value stays")
		}
	})
}

func TestTheEntryOfAClientIsPrinted(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "mem", statuses: []api.PoolStatus{
		{Spec: spec.Spec{MCP: spec.MCP{Mode: spec.MCPShared}},
			Workers: []api.RosterEntry{{Endpoint: "unix:/x"}, {Endpoint: "http://b:1"}, {Endpoint: "http://a:1"}}},
		{Spec: spec.Spec{MCP: spec.MCP{Mode: spec.MCPShared}}},
		{},
	}})
	r := succeed(t, f, "mcp", "url", "mem")
	require.JSONEq(t, `{"mcpServers": {"mem": {"type": "http", "url": "http://a:1/mcp/mem"}}}`, r.out)
	require.Contains(t, r.err, "the others are http://b:1")
	require.Contains(t, fail(t, f, "mcp", "url", "mem").err, "no worker of pool mem has a gateway with an HTTP address")
	require.Contains(t, fail(t, f, "mcp", "url", "mem").err, "serves no MCP clients")
}
