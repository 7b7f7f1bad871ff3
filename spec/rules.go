package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// rule restricts the value of one key. A key without a rule allows every value of its form.
type rule struct {
	key     string
	allowed string
	// check returns where below the key, and why, a value violates the rule. No problem means that it does not.
	check func(value any) (at, problem string)
}

const (
	maxWorkers = 1000
	maxCount   = 1_000_000_000
)

var (
	nameForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	umaskForm = regexp.MustCompile(`^0?[0-7]{3}$`)
)

const nameAllowed = `1 to 63 characters of a-z, 0-9, _ and -, the first a letter or digit, such as "web-1"`

// ValidLabel reports whether a pool can have label as its placement.
func ValidLabel(label string) bool { return nameForm.MatchString(label) }

// rules are checked in this order, which is that of the file.
var rules = []rule{
	{"pool.name", nameAllowed, func(v any) (string, string) {
		switch name := v.(string); {
		case name == "":
			return "", "is missing"
		case !nameForm.MatchString(name):
			return "", fmt.Sprintf("%s is not a valid pool name", quoteValue(name))
		case name == "host":
			return "", `"host" is reserved for the workflows of hosts`
		}
		return "", ""
	}},
	{"pool.size", "a whole number from 1 to 1000; to have no workers, stop the pool", intBetween(1, maxWorkers)},
	oneOf("pool.kind", KindProcess, KindContainer, KindFunction),
	{"pool.command", commandAllowed, commandProblem},
	{"pool.function", functionAllowed, holds(func(name string) bool { return name == "" || nameForm.MatchString(name) })},
	{"pool.image", imageAllowed, holds(func(image string) bool {
		return !strings.HasPrefix(image, "-") && !strings.ContainsAny(image, " \t\r\n\x00")
	})},
	{"pool.run_args", "strings without NUL characters", commandProblem},
	oneOf("pool.protocol", ProtocolFrames, ProtocolJSONRPC, ProtocolNone),
	oneOf("pool.on_partition", PartitionServe, PartitionFence),
	oneOf("pool.framing", FramingLine, FramingContentLength, FramingPacket4),
	{"pool.placement", nameAllowed, holds(ValidLabel)},
	integerRange("pool.max_inflight", 1, 1000),
	{"pool.env", `strings without NUL, such as LANG = "C"; names without = that do not begin with TEMPOOL_`,
		eachNamed(func(name, value string) string {
			return cmp.Or(variableProblem(name), problemIf(strings.ContainsRune(value, 0), "contains a NUL character"))
		})},
	{"pool.env_from", "names without = that do not begin with TEMPOOL_", each(variableProblem)},
	textWithoutNUL("pool.env_file"),
	textWithoutNUL("pool.dir"),
	textWithoutNUL("pool.user"),
	textWithoutNUL("pool.group"),
	{"pool.umask", `three octal digits such as "022", or "" for the umask of the agent`,
		holds(func(umask string) bool { return umask == "" || umaskForm.MatchString(umask) })},
	oneOf("pool.on_suspend", SuspendRun, SuspendFreeze),
	positiveDuration("pool.stop_grace"),
	sizeRange("pool.max_message", 1<<10, 1<<30),

	positiveDuration("start.timeout"),
	integerRange("start.concurrency", 0, maxWorkers),
	numberRange("start.rate_per_second", 0, 10_000),
	{"start.warmup", "[[start.warmup]] tables, each with a method (a string), params (any value; {} without) and " +
		"notification (true or false)", func(v any) (string, string) {
		for i, w := range v.([]Warmup) {
			if w.Method == "" || strings.ContainsRune(w.Method, 0) {
				return fmt.Sprintf("[%d].method", i), "is missing"
			}
			if len(w.Params) > 0 && !json.Valid(w.Params) {
				return fmt.Sprintf("[%d].params", i), "is not JSON"
			}
		}
		return "", ""
	}},

	oneOf("health.kind", HealthRPC, HealthHTTP, HealthTCP, HealthExec),
	positiveDuration("health.interval"),
	positiveDuration("health.checkpoint"),
	positiveDuration("health.timeout"),
	integerRange("health.max_failures", 1, 1000),
	integerRange("health.max_call_errors", 0, 1_000_000),
	{"health.method", "the name of a method",
		holds(func(method string) bool { return method != "" && !strings.ContainsRune(method, 0) })},
	{"health.path", `a path that begins with "/", such as "/healthz?full=1"`, holds(func(path string) bool {
		_, err := url.ParseRequestURI(path)
		return err == nil && strings.HasPrefix(path, "/")
	})},
	integerRange("health.port", 0, 65535),
	{"health.command", `the program and its arguments, such as ["test", "-e", "ok"]`, commandProblem},
	{"health.memory_bands", bandsAllowed + `; or "auto"`, func(v any) (string, string) { return bandsProblem(v.(Bands)) }},
	bands("health.cpu_bands"),
	bands("health.calls_bands"),

	integerRange("rotation.max_requests", 0, maxCount),
	numberRange("rotation.jitter", 0, 0.9),
	autoSizeRange("rotation.max_memory", 0, 1<<50),
	optionalDuration("rotation.max_uptime"),
	positiveDuration("rotation.drain_timeout"),
	integerRange("rotation.max_unavailable", 1, maxWorkers),

	integerRange("scale.min", 0, maxWorkers),
	{"scale.max", "a whole number from 0 to 1000; 0 keeps pool.size workers", intBetween(0, maxWorkers)},
	numberRange("scale.target_inflight", 0.05, 1),
	positiveDuration("scale.up_after"),
	positiveDuration("scale.down_after"),
	optionalDuration("scale.idle_to_zero"),

	oneOf("recovery.restart", RestartAlways, RestartOnFailure, RestartNever),
	integerRange("recovery.max_consecutive_failures", 1, maxCount),
	positiveDuration("recovery.backoff_initial"),
	positiveDuration("recovery.backoff_max"),
	numberRange("recovery.backoff_multiplier", 1, 100),
	positiveDuration("recovery.healthy_reset"),

	positiveDuration("lease.ttl"),
	positiveDuration("lease.max_ttl"),
	oneOf("lease.on_expiry", ExpiryReplace, ExpiryReset),

	positiveDuration("call.timeout"),
	positiveDuration("call.cancel_grace"),

	integerRange("queue.size", 1, 1_000_000),
	positiveDuration("queue.timeout"),

	sizeRange("limits.memory", 0, 1<<50),
	numberRange("limits.cpu", 0, 4096),
	integerRange("limits.open_files", 0, maxCount),
	integerRange("limits.processes", 0, maxCount),
	optionalDuration("limits.cpu_time"),
	{"limits.cpu_affinity", "a list of core numbers from 0 to 4095, such as [0, 1]", each(func(core int) string {
		return problemIf(core < 0 || core > 4095, fmt.Sprintf("%d is not a core number", core))
	})},
	integerRange("limits.cpu_affinity_each", 0, 4096),
	integerRange("limits.nice", -20, 19),
	integerRange("limits.oom_score_adj", -1000, 1000),
	integerRange("limits.calls_per_minute", 0, maxCount),
	{"sandbox.read", absolutePathsAllowed, each(absolutePathProblem)},
	{"sandbox.write", absolutePathsAllowed, each(absolutePathProblem)},
	oneOf("sandbox.network", NetworkHost, NetworkNone),
	oneOf("isolation.by", IsolateNone, IsolateKey, IsolateUse),
	positiveDuration("isolation.idle"),
	optionalDuration("isolation.max_lifetime"),
	integerRange("isolation.max_per_key", 1, maxCount),
	integerRange("isolation.spares", 0, maxCount),
	sources("isolation.env", `sources of variables: "key", "header:X-…" or "file:/run/secrets/{key}"`),

	oneOf("mcp.mode", MCPNone, MCPShared, MCPSession, MCPRequest),
	oneOf("mcp.era", EraAuto, EraLegacy, EraModern),
	integerRange("mcp.max_sessions", 1, 1_000_000),
	integerRange("mcp.max_sessions_per_principal", 0, 1_000_000),
	positiveDuration("mcp.idle"),
	optionalDuration("mcp.park"),
	oneOf("mcp.after_crash", CrashTell, CrashSilent, CrashEnd),
	positiveDuration("mcp.sse_after"),
	positiveDuration("mcp.keep_alive"),
	{"mcp.tools", toolsAllowed, each(globProblem)},
	{"mcp.tools_deny", toolsAllowed, each(globProblem)},
	{"mcp.origins", `origins of web pages, such as ["https://chat.example", "http://localhost:6274"]`, each(originProblem)},
	sources("mcp.env", `sources of variables: "header:X-…" or "file:/run/secrets/{principal}"`),

	positiveDuration("watch.debounce"),
	oneOf("watch.mode", WatchRolling, WatchAll),

	oneOf("sessions.store", StoreMemory, StoreEmbedded, StoreRedis),
	rule{"sessions.url", redisURLAllowed, func(v any) (string, string) { return "", redisProblem(v.(string)) }},
	positiveDuration("sessions.ttl"),
	positiveDuration("sessions.anonymous_ttl"),
	oneOf("sessions.sync", SyncAlways, SyncInterval),
	integerRange("sessions.max", 1, maxCount),
	oneOf("sessions.on_full", OnFullRefuse, OnFullEvict),
	positiveDuration("sessions.affinity_ttl"),

	oneOf("resources.allocation", AllocationNone, AllocationEqual, AllocationWeighted, AllocationAdaptive),
	sizeRange("resources.memory_budget", 0, 1<<50),
	numberRange("resources.cpu_budget", 0, 4096),
	positiveDuration("resources.rebalance"),

	integerRange("prediction.window", 3, 1000),
	positiveDuration("prediction.horizon"),

	oneOf("policy.mode", PolicyEnforce, PolicyObserve),
}

var headerForm = regexp.MustCompile(`^[Xx]-[A-Za-z0-9-]{1,100}$`)

// sources is the rule of a table of variables and their sources.
func sources(key, allowed string) rule {
	return rule{key, allowed, eachNamed(func(name, source string) string {
		return cmp.Or(variableProblem(name), sourceProblem(source))
	})}
}

// sourceProblem says what is wrong with a source of isolation.env. Only headers with X- pass to workers.
func sourceProblem(source string) string {
	header, isHeader := strings.CutPrefix(source, EnvHeader)
	file, isFile := strings.CutPrefix(source, EnvFile)
	switch {
	case source == EnvKey, isHeader && headerForm.MatchString(header),
		isFile && strings.HasPrefix(file, "/") && !strings.ContainsRune(file, 0):
		return ""
	case isHeader:
		return fmt.Sprintf("%s is not the name of a header that begins with X-", quoteValue(header))
	}
	return fmt.Sprintf("%s is no source", quoteValue(source))
}

const toolsAllowed = `globs of names of tools, such as ["read_*", "search"]`

func globProblem(glob string) string {
	_, err := path.Match(glob, "")
	return problemIf(err != nil || glob == "", quoteValue(glob)+" is not a glob")
}

func originProblem(origin string) string {
	u, err := url.Parse(origin)
	return problemIf(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin),
		quoteValue(origin)+" is not an origin in lower case without a path")
}

const absolutePathsAllowed = `absolute paths without NUL, such as ["/usr", "/srv/models"]`

func absolutePathProblem(file string) string {
	return problemIf(!strings.HasPrefix(file, "/") || strings.ContainsRune(file, 0),
		quoteValue(file)+" is not an absolute path")
}
