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

// Spec is the configuration of a pool. Start from Default, not from the zero value, which Validate rejects. The fields
// of its sections are the keys of a file: a tag names the default, which is the zero value without one, and ruleOf says
// what values are allowed.
type Spec struct {
	Pool       Pool       `json:"pool"`
	Start      Start      `json:"start"`
	Health     Health     `json:"health"`
	Rotation   Rotation   `json:"rotation"`
	Scale      Scale      `json:"scale"`
	Recovery   Recovery   `json:"recovery"`
	Lease      Lease      `json:"lease"`
	Call       Call       `json:"call"`
	Queue      Queue      `json:"queue"`
	Limits     Limits     `json:"limits"`
	Sandbox    Sandbox    `json:"sandbox"`
	Isolation  Isolation  `json:"isolation"`
	MCP        MCP        `json:"mcp"`
	Watch      Watch      `json:"watch"`
	Sessions   Sessions   `json:"sessions"`
	Resources  Resources  `json:"resources"`
	Prediction Prediction `json:"prediction"`
	Pressure   Pressure   `json:"pressure"`
	Policy     Policy     `json:"policy"`
}

// Pool is what a pool runs, the number of workers and their protocol. Name has no default, and neither do Command and
// Function where Kind needs them.
type Pool struct {
	// Name matches [a-z0-9][a-z0-9_-]{0,62}. Workers are named <name>/<slot>.
	Name string `json:"name"`
	// Size is the number of workers, 1 to 1000.
	Size int `json:"size" default:"4"`
	// Kind is one of the Kind values.
	Kind string `json:"kind" default:"process" rule:"process|container|function"`
	// Command is the program and its arguments. There is no shell. A container without one runs the command of its image,
	// and a function has none.
	Command []string `json:"command"`
	// Function is the name under which the agent has registered the function, for the kind function.
	Function string `json:"function"`
	// Image is the image of a container, and RunArgs are further arguments of the engine's command run.
	Image   string   `json:"image"`
	RunArgs []string `json:"run_args"`
	// Protocol is one of the Protocol values.
	Protocol string `json:"protocol" default:"frames" rule:"frames|jsonrpc|none"`
	// Framing is one of the Framing values, for jsonrpc only.
	Framing string `json:"framing" default:"line" rule:"line|content-length|packet4"`
	// Placement is the label an agent must have to host a worker of this pool.
	Placement string `json:"placement" default:"default"`
	// MaxInflight is the number of calls that one worker serves at once.
	MaxInflight int `json:"max_inflight" default:"1" rule:"1..1000"`
	// Env is the environment of the worker, in addition to EnvFrom, EnvFile, Tempool's own variables, and the agent's PATH
	// unless one of them sets one.
	Env map[string]string `json:"env"`
	// EnvFrom names variables that each start copies from the agent's environment, so that secrets stay out of the spec.
	EnvFrom []string `json:"env_from"`
	// EnvFile is a file of the host with variables that each start reads, as ParseEnv does; "" for none. Load makes it
	// absolute.
	EnvFile string `json:"env_file"`
	// Dir is the working directory. Load makes it absolute; otherwise "" means that of the agent.
	Dir string `json:"dir"`
	// User and Group, by name or number, are those the worker runs as; "" means those of the agent.
	User  string `json:"user"`
	Group string `json:"group"`
	// Umask is octal, such as "022"; "" means that of the agent.
	Umask string `json:"umask"`
	// OnPartition is one of the Partition values: what calls do while the host cannot reach Temporal.
	OnPartition string `json:"on_partition" default:"serve" rule:"serve|fence"`
	// OnSuspend is one of the Suspend values.
	OnSuspend string `json:"on_suspend" default:"run" rule:"run|freeze"`
	// StopGrace is the time between TERM and KILL.
	StopGrace Duration `json:"stop_grace" default:"5s"`
	// MaxMessage is the size of the largest message in either direction. A larger one from the worker ends its
	// incarnation.
	MaxMessage Bytes `json:"max_message" default:"64MiB" rule:"1KiB..1GiB"`
}

// Start configures the start of an incarnation.
type Start struct {
	// Timeout bounds spawn, handshake and warm-up together.
	Timeout Duration `json:"timeout" default:"30s"`
	// Concurrency bounds the concurrent starts on one host; 0 means its number of cores.
	Concurrency int `json:"concurrency" rule:"0..1000"`
	// RatePerSecond bounds the starts of the pool per second; 0 means no bound.
	RatePerSecond float64 `json:"rate_per_second" rule:"0..10000"`
	// Fork makes each process a fork of a template that has loaded the program.
	Fork bool `json:"fork"`
	// Warmup messages are sent in this order before the worker is ready.
	Warmup []Warmup `json:"warmup"`
}

// Warmup is one message of the handshake, such as MCP's initialize. An error response to a request fails the start.
type Warmup struct {
	Method string `json:"method"`
	// Params is JSON; empty means {}.
	Params json.RawMessage `json:"params"`
	// Notification means that the message gets no response.
	Notification bool `json:"notification"`
}

// Health configures the probes and the health grade of workers.
type Health struct {
	// Kind is one of the Health values.
	Kind string `json:"kind" default:"rpc" rule:"rpc|http|tcp|exec"`
	// Interval is the time between the probes of the agent, which leave no history.
	Interval Duration `json:"interval" default:"30s"`
	// Checkpoint is the time between the probes of the workflow, which its history records with a sample.
	Checkpoint Duration `json:"checkpoint" default:"5m"`
	// Timeout bounds one probe.
	Timeout Duration `json:"timeout" default:"5s"`
	// MaxFailures consecutive failures replace the worker; fewer degrade it.
	MaxFailures int `json:"max_failures" default:"3" rule:"1..1000"`
	// MaxCallErrors calls in a row on one worker that end in an error which the program did not raise on purpose degrade
	// it; as many again replace it. 0 means never.
	MaxCallErrors int `json:"max_call_errors" default:"10" rule:"0..1000000"`
	// Method is the request of kind rpc for jsonrpc workers. Any response passes, even an error.
	Method string `json:"method" default:"ping"`
	// Path is the path that kind http requests.
	Path string `json:"path" default:"/"`
	// Port is the port on the worker's host that kinds http and tcp connect to; 0 means the worker's $PORT.
	Port int `json:"port" rule:"0..65535"`
	// Command is the command that kind exec runs in the worker's directory and environment.
	Command []string `json:"command"`
	// The bands grade a worker's health: four rising values at which it stops being excellent, good, degraded and
	// critical. Empty means no grade by that measure. Memory is in MB (1000² bytes) of the process tree, CPU in percent of
	// one core, calls per minute.
	MemoryBands Bands     `json:"memory_bands" default:"auto"`
	CPUBands    []float64 `json:"cpu_bands" rule:"bands"`
	CallsBands  []float64 `json:"calls_bands" rule:"bands"`
}

// Rotation configures when and how a healthy worker is replaced.
type Rotation struct {
	// MaxRequests, MaxMemory (of the process tree) and MaxUptime each limit an incarnation; 0 means no limit. MaxMemory
	// may be Auto.
	MaxRequests int `json:"max_requests" default:"10000" rule:"0.."`
	// Jitter varies each incarnation's MaxRequests at random by up to this fraction.
	Jitter    float64  `json:"jitter" default:"0.1" rule:"0..0.9"`
	MaxMemory Bytes    `json:"max_memory" default:"auto"`
	MaxUptime Duration `json:"max_uptime" default:"24h" rule:"optional"`
	// DrainTimeout bounds how long a stop waits for calls in flight.
	DrainTimeout Duration `json:"drain_timeout" default:"5s"`
	// MaxUnavailable bounds the workers of the pool that drain at once.
	MaxUnavailable int `json:"max_unavailable" default:"1" rule:"1..1000"`
	// Surge starts the next process before the old one drains.
	Surge bool `json:"surge" default:"true"`
}

// Scale makes the number of workers follow the demand.
type Scale struct {
	// Min and Max bound the number of workers. Max 0 means that the number does not follow the demand.
	Min int `json:"min" rule:"0..1000"`
	Max int `json:"max"`
	// TargetInflight is the part of pool.max_inflight that the calls of one worker should take.
	TargetInflight float64 `json:"target_inflight" default:"0.7" rule:"0.05..1"`
	// UpAfter is how long more workers must be wanted before they start, DownAfter how long fewer must be before one
	// stops.
	UpAfter   Duration `json:"up_after" default:"1s"`
	DownAfter Duration `json:"down_after" default:"5m"`
	// IdleToZero is after how long without demand the last worker stops; 0 keeps it.
	IdleToZero Duration `json:"idle_to_zero" rule:"optional"`
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
	Restart string `json:"restart" default:"always" rule:"always|on-failure|never"`
	// MaxConsecutiveFailures failures put the worker into state failed until an operator restarts it.
	MaxConsecutiveFailures int `json:"max_consecutive_failures" default:"10" rule:"1.."`
	// The delay before consecutive restart n, from the second on, is BackoffInitial × BackoffMultiplier^(n−2), at most
	// BackoffMax.
	BackoffInitial    Duration `json:"backoff_initial" default:"100ms"`
	BackoffMax        Duration `json:"backoff_max" default:"60s"`
	BackoffMultiplier float64  `json:"backoff_multiplier" default:"3" rule:"1..100"`
	// HealthyReset is the healthy uptime that resets the count of failures.
	HealthyReset Duration `json:"healthy_reset" default:"60s"`
}

// Lease bounds how long a holder may use a worker.
type Lease struct {
	// TTL is the default of a checkout.
	TTL Duration `json:"ttl" default:"60s"`
	// MaxTTL bounds the TTL of one checkout or renewal.
	MaxTTL Duration `json:"max_ttl" default:"24h"`
	// OnExpiry is one of the Expiry values.
	OnExpiry string `json:"on_expiry" default:"replace" rule:"replace|reset"`
}

// Call bounds one call.
type Call struct {
	// Timeout is the longest time of a call, with its wait; a caller may ask for less.
	Timeout Duration `json:"timeout" default:"10m"`
	// CancelGrace is how long a worker may take to give up a cancelled call. Then its process is replaced.
	CancelGrace Duration `json:"cancel_grace" default:"5s"`
}

// Queue bounds the calls that wait in a gateway.
type Queue struct {
	Size int `json:"size" default:"1000" rule:"1..1000000"`
	// Timeout is the longest wait of one call.
	Timeout Duration `json:"timeout" default:"30s"`
}

// Limits bound the process tree of one worker; 0 means no limit, unless the field says otherwise.
type Limits struct {
	Memory Bytes `json:"memory" rule:"optional"`
	// CPU is in cores.
	CPU float64 `json:"cpu" rule:"0..4096"`
	// OpenFiles is per process; 0 means the limit of the agent.
	OpenFiles int `json:"open_files" default:"1024" rule:"0.."`
	Processes int `json:"processes" rule:"0.."`
	// CPUTime bounds the CPU time of one process.
	CPUTime Duration `json:"cpu_time" rule:"optional"`
	// CPUAffinity lists the cores the worker may run on; empty means all.
	CPUAffinity []int `json:"cpu_affinity"`
	// CPUAffinityEach is the number of those cores that each worker is bound to, by its slot; 0 means all.
	CPUAffinityEach int `json:"cpu_affinity_each" rule:"0..4096"`
	// Nice is the scheduling priority, −20 (first) to 19 (last).
	Nice int `json:"nice" rule:"-20..19"`
	// OOMScoreAdj, −1000 to 1000, adjusts the kernel's OOM score of the worker.
	OOMScoreAdj    int `json:"oom_score_adj" rule:"-1000..1000"`
	CallsPerMinute int `json:"calls_per_minute" rule:"0.."`
}

// Sandbox restricts what one worker's process tree reaches. It needs Linux.
type Sandbox struct {
	// Read are the paths that the worker may read and execute; empty means all. Write are the paths that it may write to
	// as well; empty means all if Read is empty, else none.
	Read  []string `json:"read"`
	Write []string `json:"write"`
	// Network is NetworkHost, or NetworkNone for a loopback interface of the worker's own only.
	Network string `json:"network" default:"host" rule:"host|none"`
	// PrivateTmp gives the worker a /tmp and a /var/tmp of its own, in memory.
	PrivateTmp bool `json:"private_tmp"`
}

// Watch restarts workers when files change.
type Watch struct {
	Paths  []string `json:"paths"`
	Ignore []string `json:"ignore"`
	// Debounce is how long files must be unchanged first.
	Debounce Duration `json:"debounce" default:"500ms"`
	// Mode is WatchRolling, which respects rotation.max_unavailable, or WatchAll: all workers at once.
	Mode string `json:"mode" default:"rolling" rule:"rolling|all"`
}

// Sessions configures the session store.
type Sessions struct {
	// Store is one of the Store values.
	Store string `json:"store" default:"embedded" rule:"memory|embedded|redis"`
	// URL is the address of the redis store. It may hold a password, or name the agent's environment variable that does
	// ($NAME): do not log it.
	URL string `json:"url"`
	// TTL, AnonymousTTL and AffinityTTL count from the last use.
	TTL          Duration `json:"ttl" default:"1h"`
	AnonymousTTL Duration `json:"anonymous_ttl" default:"5m"`
	// Sync is one of the Sync values: the embedded store acknowledges a write when it is on disk, or up to 100 ms before.
	Sync string `json:"sync" default:"always" rule:"always|interval"`
	// Max bounds the number of live sessions.
	Max int `json:"max" default:"10000" rule:"1.."`
	// OnFull is one of the OnFull values: whether a new session beyond Max is refused or evicts another.
	OnFull      string   `json:"on_full" default:"refuse" rule:"refuse|evict"`
	AffinityTTL Duration `json:"affinity_ttl" default:"5m"`
}

// Resources configures the split of a host's budget among the pool's workers.
type Resources struct {
	// Allocation is one of the Allocation values.
	Allocation string `json:"allocation" default:"none" rule:"none|equal|weighted|adaptive"`
	// MemoryBudget and CPUBudget (in cores) are the budget; 0 means all of the host.
	MemoryBudget Bytes    `json:"memory_budget" rule:"optional"`
	CPUBudget    float64  `json:"cpu_budget" rule:"0..4096"`
	Rebalance    Duration `json:"rebalance" default:"5m"`
}

// Prediction configures the replacement of workers before they fail.
type Prediction struct {
	Enabled bool `json:"enabled" default:"true"`
	// Window is the number of samples of a trend.
	Window int `json:"window" default:"10" rule:"3..1000"`
	// Horizon is how far ahead a predicted violation counts.
	Horizon Duration `json:"horizon" default:"5m"`
}

// Pressure configures the reaction to memory pressure of a host.
type Pressure struct {
	Enabled bool `json:"enabled" default:"true"`
}

// Policy configures whether decisions by grade, prediction, allocation and pressure are carried out.
type Policy struct {
	// Mode is PolicyEnforce, or PolicyObserve to only record and report decisions.
	Mode string `json:"mode" default:"enforce" rule:"enforce|observe"`
}
