package spec

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheFullFileEqualsTheDefaults(t *testing.T) {
	s, err := Load("testdata/full.toml")
	require.NoError(t, err)
	want := Default()
	want.Pool.Name, want.Pool.Command = "python", []string{"python3", "worker.py"}
	want.Pool.Dir = s.Pool.Dir
	want.Start.Warmup = []Warmup{{Method: "initialize", Params: json.RawMessage("{}")}}
	require.Equal(t, want, s)
}

func TestTheFullFileHasEveryKey(t *testing.T) {
	data, err := os.ReadFile("testdata/full.toml")
	require.NoError(t, err)
	mentions, _, err := locate(data)
	require.NoError(t, err)
	mentioned := map[string]bool{}
	for _, m := range mentions {
		mentioned[joinKey(m.parts[:min(len(m.parts), 2)])] = true
	}
	for _, k := range keys {
		require.True(t, mentioned[k.key()], k.key())
	}
}

func TestTheConstantsAreTheWordsOfTheirKeys(t *testing.T) {
	constants := map[string][]string{
		"pool.kind":            {KindProcess, KindContainer, KindFunction},
		"pool.protocol":        {ProtocolFrames, ProtocolJSONRPC, ProtocolNone},
		"pool.framing":         {FramingLine, FramingContentLength, FramingPacket4},
		"pool.on_partition":    {PartitionServe, PartitionFence},
		"pool.on_suspend":      {SuspendRun, SuspendFreeze},
		"health.kind":          {HealthRPC, HealthHTTP, HealthTCP, HealthExec},
		"recovery.restart":     {RestartAlways, RestartOnFailure, RestartNever},
		"lease.on_expiry":      {ExpiryReplace, ExpiryReset},
		"sandbox.network":      {NetworkHost, NetworkNone},
		"isolation.by":         {IsolateNone, IsolateKey, IsolateUse},
		"mcp.mode":             {MCPNone, MCPShared, MCPSession, MCPRequest},
		"mcp.era":              {EraAuto, EraLegacy, EraModern},
		"mcp.after_crash":      {CrashTell, CrashSilent, CrashEnd},
		"watch.mode":           {WatchRolling, WatchAll},
		"sessions.store":       {StoreMemory, StoreEmbedded, StoreRedis},
		"sessions.sync":        {SyncAlways, SyncInterval},
		"sessions.on_full":     {OnFullRefuse, OnFullEvict},
		"resources.allocation": {AllocationNone, AllocationEqual, AllocationWeighted, AllocationAdaptive},
		"policy.mode":          {PolicyEnforce, PolicyObserve},
	}
	for section := range reflect.TypeFor[Spec]().Fields() {
		for field := range section.Type.Fields() {
			key := section.Tag.Get("json") + "." + field.Tag.Get("json")
			if words := strings.Split(field.Tag.Get("rule"), "|"); len(words) > 1 {
				require.Equal(t, words, constants[key], key)
			}
		}
	}
	for key := range constants {
		rejects(t, key, "")
		rejects(t, key, "other")
	}
}

func TestDefaultsAreNotShared(t *testing.T) {
	s, other := Default(), Default()
	for _, k := range keys {
		switch mine := k.value(&s); mine.Kind() {
		case reflect.Slice:
			mine.Set(reflect.Append(mine, reflect.Zero(mine.Type().Elem())))
		case reflect.Map:
			mine.SetMapIndex(reflect.ValueOf("A"), reflect.ValueOf("b"))
		default:
			continue
		}
		for _, unchanged := range []Spec{other, Default()} {
			require.Zero(t, k.value(&unchanged).Len(), k.key())
		}
	}
}
