// Package spec parses and validates the spec of a pool, pool.toml.
//
// tempool sends a Spec as JSON to the pool's workflow, which passes it to the agents. The JSON has the same sections
// and keys as the file, with durations and sizes as strings. Missing keys have their defaults. Only Load does I/O.
package spec

import "encoding/json"

// Values of pool.kind: what runs a worker.
const (
	KindProcess   = "process"   // a program of the host
	KindContainer = "container" // a container of the host's engine
	KindFunction  = "function"  // a Go function of an agent that its user built
)

// Values of pool.protocol: how requests reach a worker.
const (
	ProtocolFrames  = "frames"  // binary frames on descriptors of their own, what the SDKs speak
	ProtocolJSONRPC = "jsonrpc" // JSON-RPC 2.0 over stdin and stdout
	ProtocolNone    = "none"    // the program listens on $PORT
)

// Values of pool.framing: how JSON-RPC messages are delimited.
const (
	FramingLine          = "line"           // one message per line (MCP)
	FramingContentLength = "content-length" // a Content-Length header before each (LSP)
	FramingPacket4       = "packet4"        // 4 bytes of big-endian length before each (Erlang ports)
)

// Values of health.kind: how a worker is probed.
const (
	HealthRPC  = "rpc"  // a ping over the worker's protocol
	HealthHTTP = "http" // GET answers with a status from 200 to 399
	HealthTCP  = "tcp"  // the port accepts a connection
	HealthExec = "exec" // a command exits with 0
)

// Values of recovery.restart: after which ends that nobody requested a worker starts its next process.
const (
	RestartAlways    = "always"
	RestartOnFailure = "on-failure" // not after exit code 0
	RestartNever     = "never"
)

// Values of lease.on_expiry: what happens to a worker whose lease expires.
const (
	ExpiryReplace = "replace"
	ExpiryReset   = "reset"
)

// Values of isolation.by: who shares a process.
const (
	IsolateNone = "none" // everybody, one after the other
	IsolateKey  = "key"  // one key: a tenant, a user, a repository
	IsolateUse  = "use"  // nobody: it serves one call of the pool, or one lease
)

// Values of sandbox.network.
const (
	NetworkHost = "host"
	NetworkNone = "none"
)

// Values of pool.on_suspend: what happens to the processes of a suspended worker.
const (
	SuspendRun    = "run"
	SuspendFreeze = "freeze"
)

// Values of pool.on_partition, sessions.store, sessions.sync, sessions.on_full, resources.allocation, watch.mode and
// policy.mode.
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
	AllocationWeighted = "weighted" // by a worker's use
	AllocationAdaptive = "adaptive" // by its use, more the busier and the healthier it is

	WatchRolling = "rolling"
	WatchAll     = "all"

	PartitionServe = "serve"
	PartitionFence = "fence"

	PolicyEnforce = "enforce"
	PolicyObserve = "observe"
)

// Spec is the configuration of a pool. Start from Default, not from the zero value, which Validate rejects.
type Spec struct {
	Pool       Pool       `json:"pool" toml:"pool"`
	Start      Start      `json:"start" toml:"start"`
	Health     Health     `json:"health" toml:"health"`
	Rotation   Rotation   `json:"rotation" toml:"rotation"`
	Scale      Scale      `json:"scale" toml:"scale"`
	Recovery   Recovery   `json:"recovery" toml:"recovery"`
	Lease      Lease      `json:"lease" toml:"lease"`
	Call       Call       `json:"call" toml:"call"`
	Queue      Queue      `json:"queue" toml:"queue"`
	Limits     Limits     `json:"limits" toml:"limits"`
	Sandbox    Sandbox    `json:"sandbox" toml:"sandbox"`
	Isolation  Isolation  `json:"isolation" toml:"isolation"`
	MCP        MCP        `json:"mcp" toml:"mcp"`
	Watch      Watch      `json:"watch" toml:"watch"`
	Sessions   Sessions   `json:"sessions" toml:"sessions"`
	Resources  Resources  `json:"resources" toml:"resources"`
	Prediction Prediction `json:"prediction" toml:"prediction"`
	Pressure   Pressure   `json:"pressure" toml:"pressure"`
	Policy     Policy     `json:"policy" toml:"policy"`
}

// Pool is what a pool runs, the number of workers and their protocol. Name has no default, and neither do Command and
// Function where Kind needs them.
type Pool struct {
	// Name matches [a-z0-9][a-z0-9_-]{0,62}. Workers are named <name>/<slot>.
	Name string `json:"name" toml:"name"`
	// Size is the number of workers, 1 to 1000.
	Size int `json:"size" toml:"size"`
	// Kind is one of the Kind values.
	Kind string `json:"kind" toml:"kind"`
	// Command is the program and its arguments. There is no shell. A container without one runs the command of its image,
	// and a function has none.
	Command []string `json:"command" toml:"command"`
	// Function is the name under which the agent has registered the function, for the kind function.
	Function string `json:"function" toml:"function"`
	// Image is the image of a container, and RunArgs are further arguments of the engine's command run.
	Image   string   `json:"image" toml:"image"`
	RunArgs []string `json:"run_args" toml:"run_args"`
	// Protocol is one of the Protocol values.
	Protocol string `json:"protocol" toml:"protocol"`
	// Framing is one of the Framing values, for jsonrpc only.
	Framing string `json:"framing" toml:"framing"`
	// Placement is the label an agent must have to host a worker of this pool.
	Placement string `json:"placement" toml:"placement"`
	// MaxInflight is the number of calls that one worker serves at once.
	MaxInflight int `json:"max_inflight" toml:"max_inflight"`
	// Env is the environment of the worker, in addition to EnvFrom, EnvFile, Tempool's own variables, and the agent's PATH
	// unless one of them sets one.
	Env map[string]string `json:"env" toml:"env"`
	// EnvFrom names variables that each start copies from the agent's environment, so that secrets stay out of the spec.
	EnvFrom []string `json:"env_from" toml:"env_from"`
	// EnvFile is a file of the host with variables that each start reads, as ParseEnv does; "" for none. Load makes it
	// absolute.
	EnvFile string `json:"env_file" toml:"env_file"`
	// Dir is the working directory. Load makes it absolute; otherwise "" means that of the agent.
	Dir string `json:"dir" toml:"dir"`
	// User and Group, by name or number, are those the worker runs as; "" means those of the agent.
	User  string `json:"user" toml:"user"`
	Group string `json:"group" toml:"group"`
	// Umask is octal, such as "022"; "" means that of the agent.
	Umask string `json:"umask" toml:"umask"`
	// OnPartition is one of the Partition values: what calls do while the host cannot reach Temporal.
	OnPartition string `json:"on_partition" toml:"on_partition"`
	// OnSuspend is one of the Suspend values.
	OnSuspend string `json:"on_suspend" toml:"on_suspend"`
	// StopGrace is the time between TERM and KILL.
	StopGrace Duration `json:"stop_grace" toml:"stop_grace"`
	// MaxMessage is the size of the largest message in either direction. A larger one from the worker ends its
	// incarnation.
	MaxMessage Bytes `json:"max_message" toml:"max_message"`
}

// Start configures the start of an incarnation.
type Start struct {
	// Timeout bounds spawn, handshake and warm-up together.
	Timeout Duration `json:"timeout" toml:"timeout"`
	// Concurrency bounds the concurrent starts on one host; 0 means its number of cores.
	Concurrency int `json:"concurrency" toml:"concurrency"`
	// RatePerSecond bounds the starts of the pool per second; 0 means no bound.
	RatePerSecond float64 `json:"rate_per_second" toml:"rate_per_second"`
	// Fork makes each process a fork of a template that has loaded the program.
	Fork bool `json:"fork" toml:"fork"`
	// Warmup messages are sent in this order before the worker is ready.
	Warmup []Warmup `json:"warmup" toml:"warmup"`
}

// Warmup is one message of the handshake, such as MCP's initialize. An error response to a request fails the start.
type Warmup struct {
	Method string `json:"method" toml:"method"`
	// Params is JSON; empty means {}.
	Params json.RawMessage `json:"params" toml:"params"`
	// Notification means that the message gets no response.
	Notification bool `json:"notification" toml:"notification"`
}

// Health configures the probes and the health grade of workers.
type Health struct {
	// Kind is one of the Health values.
	Kind string `json:"kind" toml:"kind"`
	// Interval is the time between the probes of the agent, which leave no history.
	Interval Duration `json:"interval" toml:"interval"`
	// Checkpoint is the time between the probes of the workflow, which its history records with a sample.
	Checkpoint Duration `json:"checkpoint" toml:"checkpoint"`
	// Timeout bounds one probe.
	Timeout Duration `json:"timeout" toml:"timeout"`
	// MaxFailures consecutive failures replace the worker; fewer degrade it.
	MaxFailures int `json:"max_failures" toml:"max_failures"`
	// MaxCallErrors calls in a row on one worker that end in an error which the program did not raise on purpose degrade
	// it; as many again replace it. 0 means never.
	MaxCallErrors int `json:"max_call_errors" toml:"max_call_errors"`
	// Method is the request of kind rpc for jsonrpc workers. Any response passes, even an error.
	Method string `json:"method" toml:"method"`
	// Path is the path that kind http requests.
	Path string `json:"path" toml:"path"`
	// Port is the port on the worker's host that kinds http and tcp connect to; 0 means the worker's $PORT.
	Port int `json:"port" toml:"port"`
	// Command is the command that kind exec runs in the worker's directory and environment.
	Command []string `json:"command" toml:"command"`
	// The bands grade a worker's health: four rising values at which it stops being excellent, good, degraded and
	// critical. Empty means no grade by that measure. Memory is in MB (1000² bytes) of the process tree, CPU in percent of
	// one core, calls per minute.
	MemoryBands Bands     `json:"memory_bands" toml:"memory_bands"`
	CPUBands    []float64 `json:"cpu_bands" toml:"cpu_bands"`
	CallsBands  []float64 `json:"calls_bands" toml:"calls_bands"`
}

// Rotation configures when and how a healthy worker is replaced.
type Rotation struct {
	// MaxRequests, MaxMemory (of the process tree) and MaxUptime each limit an incarnation; 0 means no limit. MaxMemory
	// may be Auto.
	MaxRequests int `json:"max_requests" toml:"max_requests"`
	// Jitter varies each incarnation's MaxRequests at random by up to this fraction.
	Jitter    float64  `json:"jitter" toml:"jitter"`
	MaxMemory Bytes    `json:"max_memory" toml:"max_memory"`
	MaxUptime Duration `json:"max_uptime" toml:"max_uptime"`
	// DrainTimeout bounds how long a stop waits for calls in flight.
	DrainTimeout Duration `json:"drain_timeout" toml:"drain_timeout"`
	// MaxUnavailable bounds the workers of the pool that drain at once.
	MaxUnavailable int `json:"max_unavailable" toml:"max_unavailable"`
	// Surge starts the next process before the old one drains.
	Surge bool `json:"surge" toml:"surge"`
}

// Scale makes the number of workers follow the demand.
type Scale struct {
	// Min and Max bound the number of workers. Max 0 means that the number does not follow the demand.
	Min int `json:"min" toml:"min"`
	Max int `json:"max" toml:"max"`
	// TargetInflight is the part of pool.max_inflight that the calls of one worker should take.
	TargetInflight float64 `json:"target_inflight" toml:"target_inflight"`
	// UpAfter is how long more workers must be wanted before they start, DownAfter how long fewer must be before one
	// stops.
	UpAfter   Duration `json:"up_after" toml:"up_after"`
	DownAfter Duration `json:"down_after" toml:"down_after"`
	// IdleToZero is after how long without demand the last worker stops; 0 keeps it.
	IdleToZero Duration `json:"idle_to_zero" toml:"idle_to_zero"`
}

// Follows reports whether the number of workers follows the demand.
func (s Scale) Follows() bool { return s.Max > 0 }

// Lowest is the least number of workers that the pool may have.
func (s Scale) Lowest() int {
	if s.IdleToZero > 0 {
		return s.Min
	}
	return max(1, s.Min)
}

// Clamp is the number of workers within the bounds that is the nearest to n.
func (s Scale) Clamp(n int) int {
	if !s.Follows() {
		return n
	}
	return min(max(n, s.Min, 1), s.Max)
}

// Recovery configures the restart of crashed workers.
type Recovery struct {
	// Restart is one of the Restart values.
	Restart string `json:"restart" toml:"restart"`
	// MaxConsecutiveFailures failures put the worker into state failed until an operator restarts it.
	MaxConsecutiveFailures int `json:"max_consecutive_failures" toml:"max_consecutive_failures"`
	// The delay before consecutive restart n, from the second on, is BackoffInitial × BackoffMultiplier^(n−2), at most
	// BackoffMax.
	BackoffInitial    Duration `json:"backoff_initial" toml:"backoff_initial"`
	BackoffMax        Duration `json:"backoff_max" toml:"backoff_max"`
	BackoffMultiplier float64  `json:"backoff_multiplier" toml:"backoff_multiplier"`
	// HealthyReset is the healthy uptime that resets the count of failures.
	HealthyReset Duration `json:"healthy_reset" toml:"healthy_reset"`
}

// Lease bounds how long a holder may use a worker.
type Lease struct {
	// TTL is the default of a checkout.
	TTL Duration `json:"ttl" toml:"ttl"`
	// MaxTTL bounds the TTL of one checkout or renewal.
	MaxTTL Duration `json:"max_ttl" toml:"max_ttl"`
	// OnExpiry is one of the Expiry values.
	OnExpiry string `json:"on_expiry" toml:"on_expiry"`
}

// Call bounds one call.
type Call struct {
	// Timeout is the longest time of a call, with its wait; a caller may ask for less.
	Timeout Duration `json:"timeout" toml:"timeout"`
	// CancelGrace is how long a worker may take to give up a cancelled call. Then its process is replaced.
	CancelGrace Duration `json:"cancel_grace" toml:"cancel_grace"`
}

// Queue bounds the calls that wait in a gateway.
type Queue struct {
	Size int `json:"size" toml:"size"`
	// Timeout is the longest wait of one call.
	Timeout Duration `json:"timeout" toml:"timeout"`
}

// Limits bound the process tree of one worker; 0 means no limit, unless the field says otherwise.
type Limits struct {
	Memory Bytes `json:"memory" toml:"memory"`
	// CPU is in cores.
	CPU float64 `json:"cpu" toml:"cpu"`
	// OpenFiles is per process; 0 means the limit of the agent.
	OpenFiles int `json:"open_files" toml:"open_files"`
	Processes int `json:"processes" toml:"processes"`
	// CPUTime bounds the CPU time of one process.
	CPUTime Duration `json:"cpu_time" toml:"cpu_time"`
	// CPUAffinity lists the cores the worker may run on; empty means all.
	CPUAffinity []int `json:"cpu_affinity" toml:"cpu_affinity"`
	// CPUAffinityEach is the number of those cores that each worker is bound to, by its slot; 0 means all.
	CPUAffinityEach int `json:"cpu_affinity_each" toml:"cpu_affinity_each"`
	// Nice is the scheduling priority, −20 (first) to 19 (last).
	Nice int `json:"nice" toml:"nice"`
	// OOMScoreAdj, −1000 to 1000, adjusts the kernel's OOM score of the worker.
	OOMScoreAdj    int `json:"oom_score_adj" toml:"oom_score_adj"`
	CallsPerMinute int `json:"calls_per_minute" toml:"calls_per_minute"`
}

// Sandbox restricts what one worker's process tree reaches. It needs Linux.
type Sandbox struct {
	// Read are the paths that the worker may read and execute; empty means all. Write are the paths that it may write to
	// as well; empty means all if Read is empty, else none.
	Read  []string `json:"read" toml:"read"`
	Write []string `json:"write" toml:"write"`
	// Network is NetworkHost, or NetworkNone for a loopback interface of the worker's own only.
	Network string `json:"network" toml:"network"`
	// PrivateTmp gives the worker a /tmp and a /var/tmp of its own, in memory.
	PrivateTmp bool `json:"private_tmp" toml:"private_tmp"`
}

// Watch restarts workers when files change.
type Watch struct {
	Paths  []string `json:"paths" toml:"paths"`
	Ignore []string `json:"ignore" toml:"ignore"`
	// Debounce is how long files must be unchanged first.
	Debounce Duration `json:"debounce" toml:"debounce"`
	// Mode is WatchRolling, which respects rotation.max_unavailable, or WatchAll: all workers at once.
	Mode string `json:"mode" toml:"mode"`
}

// Sessions configures the session store.
type Sessions struct {
	// Store is one of the Store values.
	Store string `json:"store" toml:"store"`
	// URL is the address of the redis store. It may hold a password, or name the agent's environment variable that does
	// ($NAME): do not log it.
	URL string `json:"url" toml:"url"`
	// TTL, AnonymousTTL and AffinityTTL count from the last use.
	TTL          Duration `json:"ttl" toml:"ttl"`
	AnonymousTTL Duration `json:"anonymous_ttl" toml:"anonymous_ttl"`
	// Sync is one of the Sync values: the embedded store acknowledges a write when it is on disk, or up to 100 ms before.
	Sync string `json:"sync" toml:"sync"`
	// Max bounds the number of live sessions.
	Max int `json:"max" toml:"max"`
	// OnFull is one of the OnFull values: whether a new session beyond Max is refused or evicts another.
	OnFull      string   `json:"on_full" toml:"on_full"`
	AffinityTTL Duration `json:"affinity_ttl" toml:"affinity_ttl"`
}

// Resources configures the split of a host's budget among the pool's workers.
type Resources struct {
	// Allocation is one of the Allocation values.
	Allocation string `json:"allocation" toml:"allocation"`
	// MemoryBudget and CPUBudget (in cores) are the budget; 0 means all of the host.
	MemoryBudget Bytes    `json:"memory_budget" toml:"memory_budget"`
	CPUBudget    float64  `json:"cpu_budget" toml:"cpu_budget"`
	Rebalance    Duration `json:"rebalance" toml:"rebalance"`
}

// Prediction configures the replacement of workers before they fail.
type Prediction struct {
	Enabled bool `json:"enabled" toml:"enabled"`
	// Window is the number of samples of a trend.
	Window int `json:"window" toml:"window"`
	// Horizon is how far ahead a predicted violation counts.
	Horizon Duration `json:"horizon" toml:"horizon"`
}

// Pressure configures the reaction to memory pressure of a host.
type Pressure struct {
	Enabled bool `json:"enabled" toml:"enabled"`
}

// Policy configures whether decisions by grade, prediction, allocation and pressure are carried out.
type Policy struct {
	// Mode is PolicyEnforce, or PolicyObserve to only record and report decisions.
	Mode string `json:"mode" toml:"mode"`
}
