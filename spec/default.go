package spec

import "time"

// Default returns the defaults of all keys. It validates once Pool.Name and Pool.Command are set, which have none.
// Lists and tables are empty, not nil, so that a spec stays equal to itself through JSON.
func Default() Spec {
	return Spec{
		Pool: Pool{
			Size: 4, Kind: KindProcess, Command: []string{}, RunArgs: []string{}, Protocol: ProtocolFrames, Framing: FramingLine,
			Placement: "default", MaxInflight: 1,
			Env: map[string]string{}, EnvFrom: []string{}, OnPartition: PartitionServe, OnSuspend: SuspendRun,
			StopGrace: seconds(5), MaxMessage: 64 << 20,
		},
		Start: Start{Timeout: seconds(30), Warmup: []Warmup{}},
		Health: Health{
			Kind: HealthRPC, Interval: seconds(30), Checkpoint: minutes(5), Timeout: seconds(5), MaxFailures: 3,
			MaxCallErrors: 10,
			Method:        "ping", Path: "/", Command: []string{},
			MemoryBands: AutoBands, CPUBands: []float64{}, CallsBands: []float64{},
		},
		Rotation: Rotation{
			MaxRequests: 10_000, Jitter: 0.10, MaxMemory: Auto, MaxUptime: hours(24),
			DrainTimeout: seconds(5), MaxUnavailable: 1, Surge: true,
		},
		Scale: Scale{TargetInflight: 0.7, UpAfter: seconds(1), DownAfter: minutes(5)},
		Recovery: Recovery{
			Restart: RestartAlways, MaxConsecutiveFailures: 10, BackoffInitial: millis(100), BackoffMax: seconds(60),
			BackoffMultiplier: 3.0,
			HealthyReset:      seconds(60),
		},
		Lease:     Lease{TTL: seconds(60), MaxTTL: hours(24), OnExpiry: ExpiryReplace},
		Call:      Call{Timeout: minutes(10), CancelGrace: seconds(5)},
		Queue:     Queue{Size: 1000, Timeout: seconds(30)},
		Limits:    Limits{OpenFiles: 1024, CPUAffinity: []int{}},
		Sandbox:   Sandbox{Read: []string{}, Write: []string{}, Network: NetworkHost},
		Isolation: Isolation{By: IsolateNone, Idle: minutes(5), MaxPerKey: 1, Spares: 1, Env: map[string]string{}},
		MCP: MCP{Mode: MCPNone, Era: EraAuto, MaxSessions: 1000, Idle: minutes(30), Park: hours(24),
			AfterCrash: CrashTell, SSEAfter: millis(500), KeepAlive: seconds(15), Tools: []string{}, ToolsDeny: []string{},
			Origins: []string{}, Env: map[string]string{}},
		Watch: Watch{Paths: []string{}, Ignore: []string{}, Debounce: millis(500), Mode: WatchRolling},
		Sessions: Sessions{Store: StoreEmbedded, TTL: hours(1), AnonymousTTL: minutes(5), Sync: SyncAlways, Max: 10_000,
			OnFull: OnFullRefuse, AffinityTTL: minutes(5)},
		Resources:  Resources{Allocation: AllocationNone, Rebalance: minutes(5)},
		Prediction: Prediction{Enabled: true, Window: 10, Horizon: minutes(5)},
		Pressure:   Pressure{Enabled: true},
		Policy:     Policy{Mode: PolicyEnforce},
	}
}

func millis(n time.Duration) Duration  { return Duration(n * time.Millisecond) }
func seconds(n time.Duration) Duration { return Duration(n * time.Second) }
func minutes(n time.Duration) Duration { return Duration(n * time.Minute) }
func hours(n time.Duration) Duration   { return Duration(n * time.Hour) }
