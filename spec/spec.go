// Package spec turns a pool.toml into a Spec and back, and refuses what cannot work.
//
// A Spec travels: from the file to ctl, into the pool workflow, to every host's agent. Its JSON has the same sections and keys
// as the file, with durations and sizes as text, so it reads alike everywhere. Keys a JSON document leaves out have their
// defaults. Everything here is pure but Load, which reads the file.
package spec

import "encoding/json"

// Words of pool.protocol: how requests reach a worker.
const (
	ProtocolFrames  = "frames"  // binary frames on the socket at fd 3, what the SDKs speak
	ProtocolJSONRPC = "jsonrpc" // JSON-RPC 2.0 over stdin and stdout
	ProtocolNone    = "none"    // the program listens on $PORT by itself
)

// Words of pool.framing: how JSON-RPC messages are told apart.
const (
	FramingLine          = "line"           // one message per line (MCP)
	FramingContentLength = "content-length" // a Content-Length header before each (LSP)
	FramingPacket4       = "packet4"        // 4 bytes of big-endian length before each (Erlang ports)
)

// Words of health.kind: how a worker is asked whether it is well.
const (
	HealthRPC  = "rpc"  // a ping over the worker's protocol
	HealthHTTP = "http" // GET answers with a status from 200 to 399
	HealthTCP  = "tcp"  // the port accepts a connection
	HealthExec = "exec" // a command exits with 0
)

// Words of lease.on_expiry: what becomes of a worker whose holder went silent.
const (
	ExpiryReplace = "replace"
	ExpiryReset   = "reset"
)

// Words of sessions.store, sessions.sync, sessions.on_full, resources.allocation, watch.mode and policy.mode.
const (
	StoreMemory   = "memory"
	StoreEmbedded = "embedded"
	StoreRedis    = "redis"

	SyncAlways   = "always"
	SyncInterval = "interval"

	OnFullRefuse = "refuse"
	OnFullEvict  = "evict"

	AllocationNone     = "none"
	AllocationEqual    = "equal"
	AllocationWeighted = "weighted"
	AllocationAdaptive = "adaptive"

	WatchRolling = "rolling"
	WatchAll     = "all"

	PolicyEnforce = "enforce"
	PolicyObserve = "observe"
)

// Spec says what a pool runs and by which rules. Start from Default, never from the zero value: most zeros are refused by Validate.
type Spec struct {
	Pool       Pool       `json:"pool" toml:"pool"`
	Start      Start      `json:"start" toml:"start"`
	Health     Health     `json:"health" toml:"health"`
	Rotation   Rotation   `json:"rotation" toml:"rotation"`
	Recovery   Recovery   `json:"recovery" toml:"recovery"`
	Lease      Lease      `json:"lease" toml:"lease"`
	Queue      Queue      `json:"queue" toml:"queue"`
	Limits     Limits     `json:"limits" toml:"limits"`
	Watch      Watch      `json:"watch" toml:"watch"`
	Sessions   Sessions   `json:"sessions" toml:"sessions"`
	Resources  Resources  `json:"resources" toml:"resources"`
	Prediction Prediction `json:"prediction" toml:"prediction"`
	Pressure   Pressure   `json:"pressure" toml:"pressure"`
	Policy     Policy     `json:"policy" toml:"policy"`
}

// Pool says which program runs, how often, and how it is spoken to. Name and Command have no default.
type Pool struct {
	// Name matches [a-z0-9][a-z0-9_-]{0,62}; workers are called <name>/<slot>.
	Name string `json:"name" toml:"name"`
	// Size is the number of workers, 1 to 1000.
	Size int `json:"size" toml:"size"`
	// Command is the program and its arguments. There is no shell.
	Command []string `json:"command" toml:"command"`
	// Protocol is one of the Protocol words.
	Protocol string `json:"protocol" toml:"protocol"`
	// Framing is one of the Framing words; only jsonrpc uses it.
	Framing string `json:"framing" toml:"framing"`
	// Placement is the label an agent must have to host a worker of this pool.
	Placement string `json:"placement" toml:"placement"`
	// MaxInflight is how many calls one worker may be serving at one time.
	MaxInflight int `json:"max_inflight" toml:"max_inflight"`
	// Env holds the variables the worker gets. It gets no others but EnvFrom's, the agent's PATH unless one
	// is given here, and Tempool's own.
	Env map[string]string `json:"env" toml:"env"`
	// EnvFrom names variables copied from the agent's environment when a worker starts, so that secrets stay out of this spec.
	EnvFrom []string `json:"env_from" toml:"env_from"`
	// Dir is the working directory. Load makes it absolute; elsewhere "" means the agent's own.
	Dir string `json:"dir" toml:"dir"`
	// User and Group, by name or number, are who the worker runs as; "" means the agent's own.
	User  string `json:"user" toml:"user"`
	Group string `json:"group" toml:"group"`
	// Umask is octal text such as "022"; "" means the agent's own.
	Umask string `json:"umask" toml:"umask"`
	// StopGrace is the time between TERM and KILL.
	StopGrace Duration `json:"stop_grace" toml:"stop_grace"`
	// MaxMessage is the size of the largest message in either direction; a larger one from the worker ends its incarnation.
	MaxMessage Bytes `json:"max_message" toml:"max_message"`
}

// Start says how an incarnation comes up.
type Start struct {
	// Timeout bounds spawn, handshake and warm-up together.
	Timeout Duration `json:"timeout" toml:"timeout"`
	// Concurrency bounds how many workers start at one time on one host; 0 means its number of cores.
	Concurrency int `json:"concurrency" toml:"concurrency"`
	// RatePerSecond bounds the pool's starts in a second; 0 means no bound.
	RatePerSecond float64 `json:"rate_per_second" toml:"rate_per_second"`
	// Warmup is sent in this order before the worker counts as ready.
	Warmup []Warmup `json:"warmup" toml:"warmup"`
}

// Warmup is one message of the handshake, such as MCP's initialize. A request that is answered with an error fails the start.
type Warmup struct {
	Method string `json:"method" toml:"method"`
	// Params is JSON; empty means {}.
	Params json.RawMessage `json:"params" toml:"params"`
	// Notification means that no answer is awaited.
	Notification bool `json:"notification" toml:"notification"`
}

// Health says how workers are probed.
type Health struct {
	// Kind is one of the Health words.
	Kind string `json:"kind" toml:"kind"`
	// Interval is the rhythm of the agent's own probes, which leave no history.
	Interval Duration `json:"interval" toml:"interval"`
	// Checkpoint is the rhythm at which the workflow asks for a probe and a sample, which its history keeps.
	Checkpoint Duration `json:"checkpoint" toml:"checkpoint"`
	// Timeout bounds one probe.
	Timeout Duration `json:"timeout" toml:"timeout"`
	// MaxFailures in a row replace the worker; fewer degrade it.
	MaxFailures int `json:"max_failures" toml:"max_failures"`
	// Method is the request that serves as ping, for kind rpc on jsonrpc workers. Any answer passes, since even an error is a
	// sign of life.
	Method string `json:"method" toml:"method"`
	// Path is what kind http asks for.
	Path string `json:"path" toml:"path"`
	// Port is where kinds http and tcp connect, on the worker's host; 0 means the worker's own $PORT.
	Port int `json:"port" toml:"port"`
	// Command is what kind exec runs, in the worker's directory and environment.
	Command []string `json:"command" toml:"command"`
	// The bands grade a worker's health: four rising values at which it stops being excellent, good, degraded and critical; empty
	// leaves the measure ungraded. Memory is in MB (1000² bytes) of the whole tree, CPU in percent of one core, calls in a minute.
	MemoryBands []float64 `json:"memory_bands" toml:"memory_bands"`
	CPUBands    []float64 `json:"cpu_bands" toml:"cpu_bands"`
	CallsBands  []float64 `json:"calls_bands" toml:"calls_bands"`
}

// Rotation says when a healthy worker is replaced, and how gently.
type Rotation struct {
	// MaxRequests, MaxMemory (of the whole tree) and MaxUptime each end an incarnation; 0 means never.
	MaxRequests int `json:"max_requests" toml:"max_requests"`
	// Jitter spreads each incarnation's MaxRequests at random within this fraction up and down.
	Jitter    float64  `json:"jitter" toml:"jitter"`
	MaxMemory Bytes    `json:"max_memory" toml:"max_memory"`
	MaxUptime Duration `json:"max_uptime" toml:"max_uptime"`
	// DrainTimeout is how long calls in flight may take to finish before the worker is stopped all the same.
	DrainTimeout Duration `json:"drain_timeout" toml:"drain_timeout"`
	// MaxUnavailable bounds how many workers of the pool drain at one time.
	MaxUnavailable int `json:"max_unavailable" toml:"max_unavailable"`
	// Surge starts the next process before the old one drains.
	Surge bool `json:"surge" toml:"surge"`
}

// Recovery says how crashed workers come back.
type Recovery struct {
	// MaxConsecutiveFailures in a row end in state failed until an operator's restart.
	MaxConsecutiveFailures int `json:"max_consecutive_failures" toml:"max_consecutive_failures"`
	// The wait before restart n of a row, from the second on, is BackoffInitial × BackoffMultiplier^(n−2), at most BackoffMax.
	BackoffInitial    Duration `json:"backoff_initial" toml:"backoff_initial"`
	BackoffMax        Duration `json:"backoff_max" toml:"backoff_max"`
	BackoffMultiplier float64  `json:"backoff_multiplier" toml:"backoff_multiplier"`
	// HealthyReset of good life clears the count of failures.
	HealthyReset Duration `json:"healthy_reset" toml:"healthy_reset"`
}

// Lease says how long holders keep a worker.
type Lease struct {
	// TTL is what a holder gets that asks for none.
	TTL Duration `json:"ttl" toml:"ttl"`
	// MaxTTL is the most a holder may ask for at one time; renewing starts anew.
	MaxTTL Duration `json:"max_ttl" toml:"max_ttl"`
	// IdleReturn is how long a gateway keeps a worker it has no call for.
	IdleReturn Duration `json:"idle_return" toml:"idle_return"`
	// OnExpiry is one of the Expiry words.
	OnExpiry string `json:"on_expiry" toml:"on_expiry"`
}

// Queue bounds the calls that wait in a gateway for a worker.
type Queue struct {
	Size int `json:"size" toml:"size"`
	// Timeout is the longest wait of one call.
	Timeout Duration `json:"timeout" toml:"timeout"`
}

// Limits bound what one worker's process tree may use; 0 means no limit, unless the field says otherwise.
type Limits struct {
	Memory Bytes `json:"memory" toml:"memory"`
	// CPU is in cores.
	CPU float64 `json:"cpu" toml:"cpu"`
	// OpenFiles, 0 for the agent's own limit, counts per process.
	OpenFiles int `json:"open_files" toml:"open_files"`
	Processes int `json:"processes" toml:"processes"`
	// CPUTime is what one process may consume in all.
	CPUTime Duration `json:"cpu_time" toml:"cpu_time"`
	// CPUAffinity lists the cores the worker may run on; empty means all.
	CPUAffinity []int `json:"cpu_affinity" toml:"cpu_affinity"`
	// CPUAffinityEach is to how many of those cores each worker is bound, in turn by its slot; 0 means all of them.
	CPUAffinityEach int `json:"cpu_affinity_each" toml:"cpu_affinity_each"`
	// Nice is the scheduling priority, −20 (first) to 19 (last).
	Nice int `json:"nice" toml:"nice"`
	// OOMScoreAdj, −1000 to 1000, moves the worker in the kernel's order of whom to kill when memory runs out.
	OOMScoreAdj    int `json:"oom_score_adj" toml:"oom_score_adj"`
	CallsPerMinute int `json:"calls_per_minute" toml:"calls_per_minute"`
}

// Watch restarts workers when files change.
type Watch struct {
	Paths  []string `json:"paths" toml:"paths"`
	Ignore []string `json:"ignore" toml:"ignore"`
	// Debounce is how long files must be quiet first.
	Debounce Duration `json:"debounce" toml:"debounce"`
	// Mode is WatchRolling, in which restarts respect rotation.max_unavailable, or WatchAll: all at once.
	Mode string `json:"mode" toml:"mode"`
}

// Sessions says where clients' state is kept and for how long.
type Sessions struct {
	// Store is one of the Store words.
	Store string `json:"store" toml:"store"`
	// URL is where the redis store is found. It may hold a password: show it to nobody.
	URL string `json:"url" toml:"url"`
	// TTL, AnonymousTTL and AffinityTTL count from the last use.
	TTL          Duration `json:"ttl" toml:"ttl"`
	AnonymousTTL Duration `json:"anonymous_ttl" toml:"anonymous_ttl"`
	// Sync is one of the Sync words: what the embedded store acknowledges is on disk, or at most 100 ms from it.
	Sync string `json:"sync" toml:"sync"`
	// Max bounds the number of live sessions.
	Max int `json:"max" toml:"max"`
	// OnFull is one of the OnFull words: what a new session beyond Max meets.
	OnFull      string   `json:"on_full" toml:"on_full"`
	AffinityTTL Duration `json:"affinity_ttl" toml:"affinity_ttl"`
}

// Resources share a host's budget among the pool's workers.
type Resources struct {
	// Allocation is one of the Allocation words.
	Allocation string `json:"allocation" toml:"allocation"`
	// MemoryBudget and CPUBudget (in cores) are what there is to share; 0 means all the host has.
	MemoryBudget Bytes    `json:"memory_budget" toml:"memory_budget"`
	CPUBudget    float64  `json:"cpu_budget" toml:"cpu_budget"`
	Rebalance    Duration `json:"rebalance" toml:"rebalance"`
}

// Prediction replaces workers before they fail.
type Prediction struct {
	Enabled bool `json:"enabled" toml:"enabled"`
	// Window is the number of samples a trend is drawn from.
	Window int `json:"window" toml:"window"`
	// Horizon is how far ahead a limit's crossing counts.
	Horizon Duration `json:"horizon" toml:"horizon"`
}

// Pressure answers a host that runs short of memory.
type Pressure struct {
	Enabled bool `json:"enabled" toml:"enabled"`
}

// Policy says whether decisions by grade, prediction, allocation and pressure are carried out.
type Policy struct {
	// Mode is PolicyEnforce, or PolicyObserve to decide, record and report only.
	Mode string `json:"mode" toml:"mode"`
}
