package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/ready"
	"github.com/tempool/tempool/internal/atomicfile"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

func (a *app) mcpCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "mcp",
		Short: "Serve MCP servers to MCP clients",
		Long:  `Make pools of the MCP servers that clients are configured with, and configure clients with pools.`,
		Example: `  tempool mcp import .mcp.json --start
  tempool mcp url everything`,
	}, a.mcpImportCommand(), a.mcpURLCommand())
}

// clientEntries are pools as most clients are configured with them.
type clientEntries struct {
	Servers map[string]clientEntry `json:"mcpServers"`
}

type clientEntry struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

func newEntry(pool, gateway string) clientEntry { return clientEntry{"http", gateway + "/mcp/" + pool} }

func (a *app) mcpURLCommand() *cobra.Command {
	return a.controlPlaneCommand(&cobra.Command{
		Use:   "url POOL",
		Short: "Print a pool's entry for the configuration of an MCP client",
		Long: `Print the JSON with which an MCP client is configured to use a pool. If the gateway wants a token, add
"headers": {"Authorization": "Bearer TOKEN"}.`,
		Example: "  tempool mcp url everything",
	}, func(ctx context.Context, cp controlPlane, args []string) error {
		gateway, err := a.mcpGateway(ctx, cp.Pool(args[0]))
		if err != nil {
			return err
		}
		return writeJSON(a.out, clientEntries{map[string]clientEntry{args[0]: newEntry(args[0], gateway)}})
	})
}

// mcpGateway is the base URL of a gateway of a pool of MCP servers.
func (a *app) mcpGateway(ctx context.Context, p pool) (string, error) {
	status, err := send(ctx, a, p.Running)
	if err != nil {
		return "", err
	}
	if !status.Spec.MCP.On() {
		return "", api.Errorf(api.CodeInvalid, "pool %s serves no MCP clients; set mcp.mode in its spec", p.Name())
	}
	gateways := slices.DeleteFunc(slices.Sorted(slices.Values(status.Endpoints())),
		func(endpoint string) bool { return !strings.HasPrefix(endpoint, "http") })
	if len(gateways) == 0 {
		return "", api.Errorf(api.CodeUnavailable, "no worker of pool %s has a gateway with an HTTP address; "+
			"wait until one is ready, and start agents with --listen HOST:PORT", p.Name())
	}
	if len(gateways) > 1 {
		a.warn("each gateway of the pool serves all its clients; the others are " + strings.Join(gateways[1:], ", "))
	}
	return gateways[0], nil
}

// importResult is the result of tempool mcp import.
type importResult struct {
	Pools   []importedPool    `json:"pools"`
	Skipped map[string]string `json:"skipped"` // servers, with the reason
	clientEntries
}

// importFlags are the flags of tempool mcp import.
type importFlags struct {
	only                 []string
	mode, workspace, dir string
	start                bool
}

func (a *app) mcpImportCommand() *cobra.Command {
	flags := importFlags{mode: spec.MCPSession}
	c := &cobra.Command{
		Use:   "import FILE...",
		Short: "Make pools of the servers in the configurations of MCP clients",
		Long: `Make a pool.toml of each server in the configurations of MCP clients: of Claude, Cursor, Cline and others
(mcpServers), of VS Code (servers, in .vscode/mcp.json) and of Codex (mcp_servers, in config.toml). Variables go into a
file beside it, N.env, which only you may read. Nothing is replaced: a file that exists is an error.`,
		Example: `  tempool mcp import .mcp.json --start
  tempool mcp import ~/.codex/config.toml .vscode/mcp.json --only github --mode shared --dir pools`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("tempool mcp import takes at least one FILE")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"json", "toml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := c.Flags()
	f.StringSliceVar(&flags.only, "only", nil, "import these servers only")
	modes := []string{spec.MCPSession, spec.MCPShared, spec.MCPRequest}
	f.Var(choice[string]{&flags.mode, modes}, "mode", "mcp.mode of the pools")
	completeFlag(c, "mode", modes...)
	f.StringVar(&flags.workspace, "workspace", "",
		"the folder in which the servers run, and ${workspaceFolder} (default: that of FILE, without .vscode or .cursor)")
	f.StringVar(&flags.dir, "dir", ".", "the folder for the files of the pools")
	f.BoolVar(&flags.start, "start", false, "start the pools, and wait until their workers are ready")
	for _, name := range []string{"workspace", "dir"} {
		mustDefine(c, c.MarkFlagDirname(name))
	}
	return a.localCommand(c, func(ctx context.Context, args []string) error {
		result, err := a.importServers(args, flags)
		if err != nil {
			return err
		}
		if err := result.write(flags.dir); err != nil {
			return err
		}
		if flags.start {
			if err := a.startImported(ctx, &result); err != nil {
				return err
			}
		}
		return a.printResult(result, func(text *strings.Builder) {
			for _, p := range result.Pools {
				fmt.Fprintf(text, "%s: %s\n", p.Pool, p.File)
			}
			for _, name := range slices.Sorted(maps.Keys(result.Skipped)) {
				fmt.Fprintf(text, "%s: skipped, since %s\n", name, result.Skipped[name])
			}
			if !flags.start {
				fmt.Fprintln(text, "Start each with tempool pool start -f FILE. Then clients are configured with:")
			}
			_ = writeJSON(text, result.clientEntries)
		})
	})
}

// importServers makes the pools of all servers.
func (a *app) importServers(paths []string, flags importFlags) (importResult, error) {
	result := importResult{Pools: []importedPool{}, Skipped: map[string]string{},
		clientEntries: clientEntries{map[string]clientEntry{}}}
	m := importer{app: a, mode: flags.mode, answers: map[string]string{}, lines: bufio.NewReader(a.in)}
	missing := slices.Clone(flags.only)
	from := map[string]string{}
	for _, path := range paths {
		config, err := readClientConfig(path)
		if err != nil {
			return result, err
		}
		workspace, err := filepath.Abs(cmp.Or(flags.workspace, filepath.Dir(path)))
		if err != nil {
			return result, err
		}
		if base := filepath.Base(workspace); flags.workspace == "" && (base == ".vscode" || base == ".cursor") {
			workspace = filepath.Dir(workspace)
		}
		m.path, m.workspace, m.inputs = path, workspace, config.Inputs
		servers := config.all()
		for _, name := range slices.Sorted(maps.Keys(servers)) {
			if len(flags.only) > 0 && !slices.Contains(flags.only, name) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(only string) bool { return only == name })
			if reason := servers[name].skipped(); reason != "" {
				result.Skipped[name] = reason
				continue
			}
			p, err := m.pool(name, servers[name])
			if err != nil {
				return result, api.Errorf(api.CodeInvalid, "%s: server %s: %w", path, name, err)
			}
			if other, twice := from[p.Pool]; twice {
				return result, api.Errorf(api.CodeInvalid, "%s: server %s: its pool would have the name of that of %s; import "+
					"one of them with --only, or rename it", path, name, other)
			}
			from[p.Pool] = name + " in " + path
			result.Pools = append(result.Pools, p)
			result.Servers[p.Pool] = newEntry(p.Pool, "http://"+worker.DefaultListen)
		}
	}
	if len(missing) > 0 {
		return result, api.Errorf(api.CodeInvalid, "there is no server %s in %s (--only)", strings.Join(missing, ", "),
			strings.Join(paths, ", "))
	}
	return result, nil
}

// write writes the files of the pools, and none if one of them exists.
func (r *importResult) write(dir string) error {
	files := map[string][]byte{}
	for i := range r.Pools {
		p := &r.Pools[i]
		p.File = filepath.Join(dir, p.File)
		files[p.File] = []byte(p.text)
		var env strings.Builder
		for _, name := range slices.Sorted(maps.Keys(p.env)) {
			fmt.Fprintf(&env, "%s=%s\n", name, strconv.Quote(p.env[name]))
		}
		if len(p.env) > 0 {
			files[filepath.Join(dir, p.Pool+".env")] = []byte(env.String())
		}
	}
	for path := range files {
		if _, err := os.Lstat(path); err == nil {
			return api.Errorf(api.CodeInvalid, "%s exists; remove it, or name another folder with --dir", path)
		}
	}
	for path, content := range files {
		mode := os.FileMode(0o644)
		if filepath.Ext(path) == ".env" {
			mode = 0o600
		}
		if err := atomicfile.Write(path, content, mode); err != nil {
			return err
		}
	}
	return nil
}

// startImported starts the pools, and waits until each is ready.
func (a *app) startImported(ctx context.Context, result *importResult) error {
	return a.withControlPlane(ctx, func(cp controlPlane) error {
		for _, p := range result.Pools {
			s, err := spec.Load(p.File)
			if err == nil {
				err = a.startPool(ctx, cp, s)
			}
			if err == nil {
				err = a.awaitReady(ctx, cp, p.Pool, defaultWait, &ready.Tracker{})
			}
			gateway := ""
			if err == nil {
				gateway, err = a.mcpGateway(ctx, cp.Pool(p.Pool))
			}
			if err != nil {
				return err
			}
			result.Servers[p.Pool] = newEntry(p.Pool, gateway)
		}
		return nil
	})
}
