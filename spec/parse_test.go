package spec

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// minimal is what every good file has; tests add to it. It ends on line 3.
const function = "[pool]\nname = \"p\"\nkind = \"function\"\nfunction = \"f\"\n"

const minimal = "[pool]\nname = \"p\"\ncommand = [\"run\"]\n"

func TestValidFilesParse(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want func(s *Spec)
	}{
		"nothing but name and command": {minimal, func(s *Spec) {}},
		"crlf and a byte order mark":   {"\xef\xbb\xbf" + strings.ReplaceAll(minimal, "\n", "\r\n"), func(s *Spec) {}},
		"a function": {function + "[limits]\nopen_files = 1024\ncalls_per_minute = 60\n[rotation]\nmax_memory = ''",
			func(s *Spec) {
				s.Pool.Kind, s.Pool.Function, s.Pool.Command, s.Limits.CallsPerMinute, s.Rotation.MaxMemory =
					KindFunction, "f", []string{}, 60, 0
			}},
		"dotted keys": {`pool.name = "p"` + "\npool.command = ['run']\npool.size = 7", func(s *Spec) { s.Pool.Size = 7 }},
		"inline sections": {`pool = { name = "p", command = ["run"], env = { A = "b" } }` + "\nhealth = { max_failures = 5 }",
			func(s *Spec) {
				s.Pool.Env["A"] = "b"
				s.Health.MaxFailures = 5
			}},
		"a table for the environment": {minimal + "[pool.env]\nA = 'b'\n\"with.dot\" = ''", func(s *Spec) {
			s.Pool.Env = map[string]string{"A": "b", "with.dot": ""}
		}},
		"a whole number where a fraction may stand": {minimal + "[recovery]\nbackoff_multiplier = 2",
			func(s *Spec) { s.Recovery.BackoffMultiplier = 2 }},
		"an mcp server": {`
[pool]
name = "mcp"
command = ["npx", "server"] # a comment
protocol = "jsonrpc"
env_from = [
  "TOKEN", # another
]
umask = "0027"
[[start.warmup]]
method = "initialize"
params = { protocolVersion = "2025-06-18", capabilities = {}, clientInfo = { name = "tempool", version = "1" } }
[[start.warmup]]
method = "notifications/initialized"
notification = true
`, func(s *Spec) {
			s.Pool.Name, s.Pool.Command, s.Pool.Protocol = "mcp", []string{"npx", "server"}, ProtocolJSONRPC
			s.Pool.EnvFrom, s.Pool.Umask = []string{"TOKEN"}, "0027"
			s.Start.Warmup = []Warmup{
				{Method: "initialize", Params: json.RawMessage(
					`{"capabilities":{},"clientInfo":{"name":"tempool","version":"1"},"protocolVersion":"2025-06-18"}`)},
				{Method: "notifications/initialized", Params: json.RawMessage("{}"), Notification: true},
			}
		}},
		"warm-up params as tables of their own": {minimal +
			"[[start.warmup]]\nmethod='a'\n[start.warmup.params]\nx=1\n[[start.warmup]]\nmethod='b'\n" +
			"[start.warmup.params.y]\nz=2026-01-01", func(s *Spec) {
			s.Start.Warmup = []Warmup{{Method: "a", Params: json.RawMessage(`{"x":1}`)},
				{Method: "b", Params: json.RawMessage(`{"y":{"z":"2026-01-01"}}`)}}
		}},
		"warm-up on one line": {minimal + "[start]\nwarmup = [ # first\n {method='a', params=[1, 2]} ]", func(s *Spec) {
			s.Start.Warmup = []Warmup{{Method: "a", Params: json.RawMessage(`[1,2]`)}}
		}},
		"a fixed port": {minimal + "[health]\nkind = 'tcp'\nport = 9000",
			func(s *Spec) { s.Health.Kind, s.Health.Port = HealthTCP, 9000 }},
		"a fixed port with a probe that does not use it": {minimal +
			"protocol='none'\n[health]\nkind = 'exec'\nport = 9000\ncommand=['true']", func(s *Spec) {
			s.Pool.Protocol, s.Health.Kind, s.Health.Port, s.Health.Command = ProtocolNone, HealthExec, 9000, []string{"true"}
		}},
		"the method a language server answers": {minimal +
			"protocol='jsonrpc'\nframing='content-length'\n[health]\nmethod = 'workspace/symbol'", func(s *Spec) {
			s.Pool.Protocol, s.Pool.Framing, s.Health.Method = ProtocolJSONRPC, FramingContentLength, "workspace/symbol"
		}},
		"what becomes of an expired lease": {minimal + "[lease]\non_expiry = 'reset'",
			func(s *Spec) { s.Lease.OnExpiry = ExpiryReset }},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte(c.file), "pool.toml")
			require.NoError(t, err)
			want := Default()
			want.Pool.Name, want.Pool.Command = "p", []string{"run"}
			c.want(&want)
			require.Equal(t, want, s)
		})
	}
}

func TestInvalidFilesAreRejected(t *testing.T) {
	const (
		poolKeys = "name, size, kind, command, function, image, run_args, protocol, framing, placement, max_inflight, " +
			"env, env_from, env_file, dir, user, group, umask, on_partition, on_suspend, stop_grace, max_message"
		aName     = `1 to 63 characters of a-z, 0-9, _ and -, the first a letter or digit, such as "web-1"`
		aSize     = "a whole number from 1 to 1000; to have no workers, stop the pool"
		aDuration = `a duration such as "500ms", "30s", "5m" or "24h", from 1ms to 87600h`
		warmup    = "[[start.warmup]] tables, each with a method (a string), params (any value; {} without) and " +
			"notification (true or false)"
		sections = "[pool], [start], [health], [rotation], [scale], [recovery], [lease], [call], [queue], [limits], " +
			"[sandbox], [isolation], [mcp], [watch], [sessions], [resources], [prediction], [pressure], [policy]"
	)
	for name, c := range map[string]struct{ file, want string }{
		"an open string on the last line": {"[pool]\nname = \"p", "2: invalid TOML: unterminated basic string"},
		"a key twice": {"[pool]\nname = 'p'\n\nname = 'q'",
			"4: pool.name: duplicate of line 2; keep one"},
		"a key twice in braces": {"pool = {size = 1, size = 2}", "1: pool.size: duplicate of line 1; keep one"},

		"an unknown key": {"[pool]\ncomand = ['a']", "2: pool.comand: unknown key in [pool]; allowed: " +
			poolKeys + "; nearest known key: pool.command"},
		"a key that looks like an index": {"[pool]\n\"[x\" = 1", `2: pool."[x": unknown key in [pool]; allowed: ` + poolKeys +
			"; nearest known key: pool.env"},
		"a key that other sections have nearly": {minimal + "[health]\nsample = '1s'",
			"5: health.sample: unknown key in [health]; allowed: kind, interval, checkpoint, timeout, max_failures, " +
				"max_call_errors, method, path, port, command, memory_bands, cpu_bands, calls_bands; nearest known key: " +
				"health.path"},
		"a key of another section": {minimal + "[health]\nmax_memory = '1GiB'",
			"5: health.max_memory: unknown key in [health]; it exists in another section; allowed: kind, interval, " +
				"checkpoint, timeout, max_failures, max_call_errors, method, path, port, command, memory_bands, cpu_bands, " +
				"calls_bands; nearest known key: rotation.max_memory"},
		"an unknown section": {minimal + "[rotaton]\nsurge = true", "4: rotaton: unknown section; allowed: " +
			sections + "; nearest known key: [rotation]"},
		"a key outside its section": {"size = 3\n" + minimal,
			"1: size: is outside its section; nearest known key: pool.size or queue.size"},
		"a section that is a value": {"pool = 3", "1: pool: is a section and must be one table; allowed: [pool]"},
		"a section that is a list": {"\n[[pool]]\nname = 'p'",
			"2: pool: is a section and must be one table; allowed: [pool]"},
		"an unknown key of a warm-up": {minimal + "[[start.warmup]]\nmethod = 'a'\n[[start.warmup]]\nmethd = 'b'",
			"7: start.warmup[1].methd: unknown key in [[start.warmup]]; allowed: method, notification, params; nearest known " +
				"key: start.warmup.method"},

		"text for a number":       {"[pool]\nname = 'p'\nsize = '4'", `3: pool.size: "4" is a string; allowed: ` + aSize},
		"a fraction for a number": {"[pool]\nsize = 1.5", "2: pool.size: 1.5 is a fractional number; allowed: " + aSize},
		"text for a list": {"[pool]\ncommand = 'python3 worker.py'",
			`2: pool.command: "python3 worker.py" is a string; allowed: the program and its arguments, such as ["python3", ` +
				`"worker.py"]`},
		"a number in a command": {"[pool]\ncommand = [\n'sleep',\n5]",
			`2: pool.command[1]: 5 is a whole number; allowed: the program and its arguments, such as ["python3", "worker.py"]`},
		"a number for a variable": {minimal + "[pool.env]\nA = 'b'\nB = 3",
			`6: pool.env.B: 3 is a whole number; allowed: strings without NUL, such as LANG = "C"; ` +
				`names without = that do not begin with TEMPOOL_`},
		"a date": {"[pool]\nname = 2026-01-01", "2: pool.name: is a date or a time; allowed: " + aName},
		"a number without end": {minimal + "[recovery]\nbackoff_multiplier = inf",
			"5: recovery.backoff_multiplier: +Inf is not finite; allowed: a number from 1 to 100"},
		"one warm-up as a section": {minimal + "[start.warmup]\nmethod = 'a'", "4: start.warmup: is a table; allowed: " +
			warmup},
		"a wrong notification": {minimal + "[[start.warmup]]\nmethod = 'a'\nnotification = 1",
			"6: start.warmup[0].notification: 1 is a whole number; allowed: " + warmup},
		"params without JSON": {minimal + "[[start.warmup]]\nmethod = 'a'\nparams = { x = nan }",
			"6: start.warmup[0].params: NaN cannot be represented in JSON; allowed: " + warmup},

		"a duration without a unit": {minimal + "[health]\ninterval = '30'",
			`5: health.interval: "30" is not a duration; allowed: ` + aDuration},
		"an empty duration": {minimal + "[lease]\nttl = ''", "5: lease.ttl: 0 is not allowed; allowed: " + aDuration},
		"an empty size": {minimal + "max_message = ''",
			`4: pool.max_message: 0 is not allowed; allowed: a size such as "512MiB", "2GB" or "4096B" (units B, kB, MB, ` +
				`GB, TB, KiB, MiB, GiB, TiB) from 1KiB to 1GiB`},
		"the longest duration": {minimal + "[start]\ntimeout = '2562047h47m16s'",
			`5: start.timeout: "2562047h47m16s" is not allowed; allowed: ` + aDuration},
		"a duration of centuries": {minimal + "[rotation]\nmax_uptime = '2540400h'",
			`5: rotation.max_uptime: "2540400h" is not allowed; allowed: ` + aDuration + `; or "" for none`},
		"an unknown size unit": {minimal + "max_message = '64mb'",
			`4: pool.max_message: "64mb" is not a size; allowed: a size such as "512MiB", "2GB" or "4096B" (units B, kB, MB, ` +
				`GB, TB, KiB, MiB, GiB, TiB) from 1KiB to 1GiB`},
		"a size out of range": {minimal + "max_message = '2GiB'",
			`4: pool.max_message: "2GiB" is not allowed; allowed: a size such as "512MiB", "2GB" or "4096B" (units B, kB, MB, ` +
				`GB, TB, KiB, MiB, GiB, TiB) from 1KiB to 1GiB`},
		"no name":        {"\n[pool]\ncommand = ['a']", "2: pool.name: is missing; allowed: " + aName},
		"nothing at all": {"", "1: pool.name: is missing; allowed: " + aName},
		"the reserved name": {"[pool]\nname = 'host'",
			`2: pool.name: "host" is reserved for the workflows of hosts; allowed: ` + aName},
		"a name in capitals": {"[pool]\nname = 'P'", `2: pool.name: "P" is not a valid pool name; allowed: ` +
			aName},
		"a name that ends a line": {"[pool]\nname = \"p\\n\"",
			`2: pool.name: "p\n" is not a valid pool name; allowed: ` + aName},
		"a name of 64": {"[pool]\nname = '" + strings.Repeat("a", 64) + "'", `2: pool.name: "` +
			strings.Repeat("a", 64) + `" is not a valid pool name; allowed: ` + aName},
		"no command": {"[pool]\nname = 'p'\ncommand = []",
			`3: pool.command: is missing; allowed: the program and its arguments, such as ["python3", "worker.py"]`},
		"a container without an image": {"[pool]\nname = 'p'\nkind = 'container'",
			`3: pool.image: is missing: pool.kind = "container" needs an image; allowed: ` + imageAllowed},
		"a container that listens": {"[pool]\nname = 'p'\nkind = 'container'\nimage = 'i'\nprotocol = " +
			"'none'\n[health]\nkind = 'tcp'",
			`5: pool.protocol: "none" is not supported with pool.kind = "container"; allowed: ` +
				`"frames" or "jsonrpc" with that kind`},
		"a function without a name": {"[pool]\nname = 'p'\nkind = 'function'",
			`3: pool.function: is missing: pool.kind = "function" needs a function; allowed: ` + functionAllowed},
		"memory of a function": {function + "[limits]\nmemory = '1GiB'",
			`6: limits.memory: does not apply to pool.kind = "function"; remove it`},
		"a /tmp of a function": {function + "[sandbox]\nprivate_tmp = true",
			`6: sandbox.private_tmp: does not apply to pool.kind = "function"; remove it`},
		"an empty program": {"[pool]\nname = 'p'\ncommand = ['']",
			`3: pool.command[0]: is empty; allowed: the program and its arguments, such as ["python3", "worker.py"]`},
		"too many workers": {minimal + "size = 1001", "4: pool.size: 1001 is not allowed; allowed: " + aSize},
		"an unknown probe": {minimal + "[health]\nkind = 'grpc'",
			`5: health.kind: "grpc" is not allowed; allowed: "rpc", "http", "tcp" or "exec"`},
		"a umask in decimal": {minimal + "umask = '18'",
			`4: pool.umask: "18" is not allowed; allowed: three octal digits such as "022", or "" for the umask of the agent`},
		"a variable that Tempool sets": {minimal + "env_from = ['HOME', 'TEMPOOL_FD']",
			`4: pool.env_from[1]: "TEMPOOL_FD" is set by Tempool; allowed: names without = that do not begin with TEMPOOL_`},
		"a warm-up without method": {minimal + "[[start.warmup]]\nmethod = 'a'\n[[start.warmup]]\nparams = {}",
			"6: start.warmup[1].method: is missing; allowed: " + warmup},
		"an invalid path": {minimal + "[health]\nkind = 'http'\nport = 80\npath = 'healthz'",
			`7: health.path: "healthz" is not allowed; allowed: a path that begins with "/", such as "/healthz?full=1"`},

		"framing without effect": {minimal + "framing = 'packet4'",
			`4: pool.framing: "packet4" has no effect with pool.protocol = "frames"; allowed: pool.protocol = "jsonrpc", ` +
				`or no pool.framing`},
		"a variable from two places": {minimal + "env_from = ['A', 'B']\nenv = {B = 'x'}",
			`4: pool.env_from[1]: "B" is also in pool.env; allowed: each variable in either pool.env or pool.env_from`},
		"a PORT in env with none": {minimal + "protocol = 'none'\nenv = {PORT = '80'}\n[health]\nkind = 'tcp'",
			`5: pool.env.PORT: is set by Tempool for each worker with pool.protocol = "none"; allowed: no PORT in pool.env; ` +
				`use health.port for a fixed port`},
		"a PORT in env_from with none": {minimal + "protocol = 'none'\nenv_from = ['PORT']\n[health]\nkind = 'tcp'",
			`5: pool.env_from[0]: "PORT" is set by Tempool for each worker with pool.protocol = "none"; allowed: ` +
				`no PORT in pool.env_from; use health.port for a fixed port`},
		"a warm-up without a protocol": {minimal + "protocol = 'none'\n[[start.warmup]]\nmethod = 'a'",
			`5: start.warmup: cannot be sent with pool.protocol = "none"; allowed: no start.warmup, ` +
				`or pool.protocol = "frames" or "jsonrpc"`},
		"params JSON-RPC forbids": {minimal + "protocol = 'jsonrpc'\n[[start.warmup]]\nmethod = 'a'\nparams = 3",
			`7: start.warmup[0].params: must be a table or a list with pool.protocol = "jsonrpc"; allowed: a table or a list`},
		"rpc with none": {minimal + "protocol = 'none'\n[health]\nkind = 'rpc'",
			`6: health.kind: "rpc" is not supported with pool.protocol = "none"; allowed: "http", ` +
				`"tcp" or "exec" with that protocol`},
		"a probe without a port": {minimal + "[health]\nkind = 'tcp'",
			`5: health.port: is missing: health.kind = "tcp" needs a port, because only pool.protocol = "none" sets $PORT; ` +
				`allowed: the port that the program listens on, 1 to 65535, such as 8080`},
		"a port without effect": {minimal + "[health]\nport = 80",
			`5: health.port: 80 has no effect with health.kind = "rpc"; allowed: health.kind = "http" or "tcp", ` +
				`or no health.port`},
		"a path without effect": {minimal + "[health]\npath = '/x'",
			`5: health.path: "/x" has no effect with health.kind = "rpc"; allowed: health.kind = "http", or no health.path`},
		"a probe without a command": {minimal + "[health]\nkind = 'exec'",
			`5: health.command: is missing: health.kind = "exec" needs a command; allowed: the program and its arguments, ` +
				`such as ["test", "-e", "ok"]`},
		"a command without effect": {minimal + "[health]\ncommand = ['true']",
			`5: health.command: has no effect with health.kind = "rpc"; allowed: health.kind = "exec", or no health.command`},
		"a method without effect": {minimal + "[health]\nkind = 'exec'\ncommand = ['true']\nmethod = 'x'",
			`7: health.method: "x" has no effect with health.kind = "exec"; allowed: health.kind = "rpc", or no health.method`},
		"a method frames do not use": {minimal + "[health]\nmethod = 'x'",
			`5: health.method: "x" has no effect with pool.protocol = "frames", which has its own ping; allowed: ` +
				`pool.protocol = "jsonrpc", or no health.method`},
		"a backoff that shrinks": {minimal + "[recovery]\nbackoff_initial = '2m'",
			`5: recovery.backoff_max: "1m" is less than recovery.backoff_initial = "2m"; allowed: ` +
				`at least recovery.backoff_initial`},
		"a lease too long": {minimal + "[lease]\nttl = '25h'",
			`5: lease.ttl: "25h" is more than lease.max_ttl = "24h"; allowed: at most lease.max_ttl`},

		"a reset that cannot be asked for": {minimal +
			"protocol = 'none'\n[health]\nkind = 'exec'\ncommand = ['true']\n[lease]\non_expiry = 'reset'",
			"9: lease.on_expiry: \"reset\" is not supported with pool.protocol = \"none\"; allowed: \"replace\" with that " +
				"protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse([]byte(c.file), "some/pool.toml")
			require.EqualError(t, err, "some/pool.toml:"+c.want)
			require.Zero(t, s)
			var shape *Error
			require.ErrorAs(t, err, &shape)
		})
	}
}

func TestErrorsAreBoundedInLength(t *testing.T) {
	var err error
	for _, file := range []string{
		"[pool]\n" + strings.Repeat("a", 10_000) + " = 1",
		"[pool]\nname = '" + strings.Repeat("é", 10_000) + "'",
		minimal + "[[start.warmup]]\nmethod = 'a'\nparams = " + strings.Repeat("[", 200) + strings.Repeat("]", 200),
	} {
		_, err = Parse([]byte(file), "pool.toml")
		require.Error(t, err)
		require.Less(t, len(err.Error()), 1000)
	}
	require.ErrorContains(t, err, "pool.toml:6: start.warmup[0].params: are nested more than 100 levels deep")
}

func TestATooLargeFileIsRejected(t *testing.T) {
	_, err := Parse([]byte(minimal+"#"+strings.Repeat("x", maxFile)), "pool.toml")
	require.EqualError(t, err, "pool.toml: the file is larger than 64KiB; allowed: up to 64KiB")
}

func TestLoadMakesPathsAbsolute(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	folder, err := os.Getwd() // as the system spells it
	require.NoError(t, err)
	require.NoError(t, os.Mkdir("pools", 0o755))
	for dir, want := range map[string]string{
		"":            filepath.Join(folder, "pools"),
		".":           filepath.Join(folder, "pools"),
		"app":         filepath.Join(folder, "pools", "app"),
		"../app":      filepath.Join(folder, "app"),
		"/srv/worker": "/srv/worker",
	} {
		path := filepath.Join("pools", "pool.toml")
		require.NoError(t, os.WriteFile(path, []byte(minimal+"dir = '"+dir+"'\nenv_file = '"+dir+"'"), 0o644))
		s, err := Load(path)
		require.NoError(t, err)
		require.Equal(t, want, s.Pool.Dir)
		if dir != "" {
			require.Equal(t, want, s.Pool.EnvFile)
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "none.toml")
	require.ErrorContains(t, err, "name a pool.toml that exists")
	var shape *Error
	require.False(t, errors.As(err, &shape), "a file that cannot be read has no content to be wrong")
	_, err = Load("testdata")
	require.ErrorContains(t, err, "name a pool.toml that exists", "a folder")

	path := filepath.Join(t.TempDir(), "bad.toml")
	require.NoError(t, os.WriteFile(path, []byte("[pool]\nsize = 0\n"), 0o644))
	_, err = Load(path)
	require.ErrorContains(t, err, path+":1: pool.name: is missing")
}
