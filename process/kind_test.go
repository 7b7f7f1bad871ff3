package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
	sdk "github.com/tempool/tempool/sdk/go"
	"github.com/tempool/tempool/spec"
)

// kindWorkerEnv makes the test binary the worker of these tests.
const kindWorkerEnv = "TEST_KIND_WORKER"

// addKindMethods makes w the worker of these tests. crash ends it; a stuck call returns when release is closed.
func addKindMethods(w *sdk.Worker, crash func(), release <-chan struct{}) {
	sdk.AddMethod(w, "echo", func(_ context.Context, text string) (string, error) { return text, nil })
	sdk.AddMethod(w, "name", func(ctx context.Context, _ any) (string, error) { return sdk.FromContext(ctx).Worker, nil })
	sdk.AddMethod(w, "send", func(_ context.Context, address string) (int, error) { return sendDatagram(address) })
	sdk.AddMethod(w, "crash", func(context.Context, any) (any, error) { crash(); return nil, nil })
	sdk.AddStream(w, "pause", func(_ context.Context, _ any, send func(string) error) error {
		defer func() { <-time.After(100 * time.Millisecond) }()
		return send("begun")
	})
	sdk.AddStream(w, "wait", func(ctx context.Context, _ any, send func(string) error) error {
		err := send("begun")
		<-ctx.Done()
		return errors.Join(err, ctx.Err())
	})
	sdk.AddStream(w, "stuck", func(_ context.Context, _ any, send func(string) error) error {
		err := send("begun")
		<-release
		return err
	})
}

// sendDatagram sends a datagram, and returns the length of its text.
func sendDatagram(address string) (int, error) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.Write(make([]byte, 1000))
}

// runKindWorker is the worker of these tests as a process of its own. Its stuck calls never return.
func runKindWorker() {
	if os.Getenv(kindWorkerEnv) == spec.ProtocolJSONRPC {
		echoJSONRPC()
	}
	addKindMethods(sdk.Default(), func() { os.Exit(crashCode) }, nil)
	sdk.Run()
}

// echoJSONRPC answers JSON-RPC requests with their params until its input ends.
func echoJSONRPC() {
	for in := json.NewDecoder(os.Stdin); ; {
		var request struct{ ID, Params json.RawMessage }
		if err := in.Decode(&request); err != nil {
			os.Exit(0)
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", request.ID, request.Params)
	}
}

// kindUnderTest is one value of pool.kind.
type kindUnderTest struct {
	spec func(t *testing.T) spec.Spec
	open func(t *testing.T, change ...func(*Config)) *Supervisor
}

// functionsOf gives a supervisor the worker of these tests as a function; its stuck calls return at the end of the
// test.
func functionsOf(t *testing.T) func(*Config) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	return func(c *Config) {
		c.Functions = map[string]Function{"f": func(ctx context.Context, run FunctionRun) error {
			w := new(sdk.Worker)
			addKindMethods(w, func() { panic("boom") }, release)
			return w.Serve(ctx, run.Conn, run.Stopping, sdk.Embedding{
				Worker: run.Worker, Incarnation: run.Incarnation, Log: run.Log, Panicked: run.Crash,
			})
		}}
	}
}

var kindsUnderTest = map[string]kindUnderTest{
	spec.KindProcess: {
		spec: func(t *testing.T) spec.Spec {
			self, err := os.Executable()
			require.NoError(t, err)
			sp := spec.Default()
			sp.Pool.Name, sp.Pool.Command, sp.Pool.Env = "p", []string{self}, map[string]string{kindWorkerEnv: "1"}
			return sp
		},
		open: open,
	},
	spec.KindFunction: {
		spec: func(*testing.T) spec.Spec {
			sp := spec.Default()
			sp.Pool.Name, sp.Pool.Kind, sp.Pool.Function = "p", spec.KindFunction, "f"
			return sp
		},
		open: func(t *testing.T, change ...func(*Config)) *Supervisor {
			var s *Supervisor
			t.Cleanup(func() { // after the stuck calls have returned
				eventually(t, func() bool { return s.AbandonedFunctions() == 0 },
					"an abandoned function must be counted until it returns")
			})
			s = open(t, append(change, functionsOf(t))...)
			return s
		},
	},
}

// callOf is a call that has begun on its worker.
type callOf struct {
	cancel context.CancelFunc
	ended  <-chan error
}

func beginCall(t *testing.T, p *Process, method string) callOf {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{}, 1)
	c := callOf{cancel, background(func() error {
		return errorOf(wire.Prepare(ctx, wire.Request{Method: method}, nil).Do(p.Conn(),
			func([]byte, string) error { begun <- struct{}{}; return nil }))
	})}
	select {
	case <-begun:
	case err := <-c.ended:
		require.NoError(t, err, "the call must begin")
	case <-time.After(waitTimeout):
		require.Fail(t, "the call did not begin")
	}
	return c
}

func TestEachKind(t *testing.T) {
	for kind, k := range kindsUnderTest {
		for promise, test := range promisesOfKinds {
			t.Run(kind+" "+promise, func(t *testing.T) {
				sp := k.spec(t)
				sp.Pool.MaxInflight, sp.Call.CancelGrace = 4, spec.Duration(waitTimeout)
				require.NoError(t, sp.Validate())
				test(t, k.open(t), sp)
			})
		}
	}
}

// promisesOfKinds are tests with a supervisor and a valid spec.
var promisesOfKinds = map[string]func(t *testing.T, s *Supervisor, sp spec.Spec){
	"serves calls and probes": func(t *testing.T, s *Supervisor, sp spec.Spec) {
		sp.Start.Warmup = []spec.Warmup{{Method: "echo", Params: []byte(`"warm"`)}}
		p := begin(t, s, sp)
		require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/0", 1, sp))), ErrSuperseded, "it lives")
		require.NoError(t, p.Probe(t.Context()))
		for method, want := range map[string]string{"echo": `"hello"`, "name": `"p/0"`} {
			answer, err := p.Conn().Call(t.Context(), wire.Request{Method: method, Payload: []byte(`"hello"`)})
			require.NoError(t, err)
			require.Equal(t, want, string(answer.Payload))
		}
		info := p.Info()
		require.NotZero(t, info.StartedAt)
		require.NotZero(t, info.ReadyAt)
		require.NotEmpty(t, info.Cookie)
		_, err := p.Sample(t.Context())
		if info.PID == 0 {
			require.ErrorIs(t, err, ErrNoProcess)
		} else {
			require.NoError(t, err)
		}
	},
	"outlives a call that gives up and lets one finish when it stops": func(t *testing.T, s *Supervisor, sp spec.Spec) {
		p := begin(t, s, sp)
		obedient := beginCall(t, p, "wait")
		obedient.cancel()
		require.ErrorIs(t, await(t, obedient.ended), context.Canceled)
		eventually(t, func() bool { return p.Conn().InFlight() == 0 }, "the worker must answer the cancel")
		require.NoError(t, p.Probe(t.Context()))
		call := beginCall(t, p, "pause")
		exit := stops(t, p)
		require.NoError(t, await(t, call.ended))
		require.True(t, exit.Interrupted, exit.Reason)
		require.False(t, exit.Failed())
		require.Zero(t, s.Live())
		require.Error(t, p.Probe(t.Context()))
		require.Error(t, errorOf(p.Conn().Call(t.Context(), wire.Request{Method: "echo"})))
		record := p.exitRecord()
		require.True(t, record.Exit().Interrupted)
		require.Error(t, record.Probe(t.Context()))
		require.Error(t, errorOf(record.Sample(t.Context())))
	},
	"is killed when it does not stop": func(t *testing.T, s *Supervisor, sp spec.Spec) {
		p := begin(t, s, sp)
		call := beginCall(t, p, "stuck")
		exit, err := p.Stop(t.Context(), 100*time.Millisecond)
		require.NoError(t, err)
		require.Error(t, await(t, call.ended))
		require.True(t, exit.Killed, exit.Reason)
		require.Contains(t, exit.Reason, "did not stop within 100ms")
		if p.Info().PID == 0 {
			require.Equal(t, 1, s.AbandonedFunctions())
			require.Contains(t, exit.Reason, "abandoned")
		}
	},
	"fails when it crashes": func(t *testing.T, s *Supervisor, sp spec.Spec) {
		p := begin(t, s, sp)
		require.Error(t, errorOf(p.Conn().Call(t.Context(), wire.Request{Method: "crash"})))
		exit := ends(t, p)
		require.True(t, exit.Failed(), exit.Reason)
		require.Equal(t, crashCode, exit.Code)
		require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/0", 1, sp))), ErrSuperseded, "it has ended")
		starts(t, s, launch("p/0", 2, sp))
	},
	"is cut with a call that ignores its cancel": func(t *testing.T, s *Supervisor, sp spec.Spec) {
		sp.Call.CancelGrace = spec.Duration(100 * time.Millisecond)
		p := begin(t, s, sp)
		stuck := beginCall(t, p, "stuck")
		stuck.cancel()
		require.Error(t, await(t, stuck.ended))
		exit := ends(t, p)
		require.True(t, exit.CutCall, exit.Reason)
		require.True(t, exit.Killed, exit.Reason)
		require.Contains(t, exit.Reason, "did not end a cancelled call within 100ms")
		require.False(t, exit.Failed(), "its caller left: that is not a fault of the program")
	},
	"is superseded by a newer incarnation": func(t *testing.T, s *Supervisor, sp spec.Spec) {
		older := begin(t, s, sp)
		stuck := beginCall(t, older, "stuck")
		newer := starts(t, s, launch("p/0", 3, sp))
		exit := ends(t, older)
		require.True(t, strings.HasPrefix(exit.Reason, "killed: superseded by incarnation 3"), exit.Reason)
		require.True(t, exit.Killed)
		require.True(t, exit.ByAgent)
		require.False(t, exit.Failed())
		require.Error(t, await(t, stuck.ended))
		require.Equal(t, []*Process{newer}, s.List())
		require.ErrorIs(t, errorOf(s.Start(t.Context(), launch("p/0", 2, sp))), ErrSuperseded)
		starts(t, s, launch("p/1", 1, sp), "other workers have incarnations of their own")
	},
}

func TestAFunctionThatTheAgentDoesNotHaveIsNamed(t *testing.T) {
	k := kindsUnderTest[spec.KindFunction]
	sp := k.spec(t)
	sp.Pool.Function = "thumbnail"
	_, err := k.open(t).Start(t.Context(), launch("p/0", 1, sp))
	require.ErrorIs(t, err, ErrStartFailed)
	require.ErrorContains(
		t, err, `this agent has no function "thumbnail" (it has f); build an agent that registers it with worker.Register`)
	require.ErrorContains(t, errorOf(open(t).Start(t.Context(), launch("p/0", 1, sp))), "it has none")
}

func TestAPanicIsTheReasonOfTheEnd(t *testing.T) {
	k := kindsUnderTest[spec.KindFunction]
	s := k.open(t)
	sp := k.spec(t)
	sp.Pool.MaxInflight = 2
	p := begin(t, s, sp)
	stuck := beginCall(t, p, "stuck")
	_, err := p.Conn().Call(t.Context(), wire.Request{Method: "crash"})
	var failure *wire.RemoteError
	require.ErrorAs(t, err, &failure, "the caller learns of the panic")
	require.Contains(t, failure.Message, "panic: boom")
	require.ErrorIs(t, await(t, stuck.ended), wire.ErrPeerClosed)
	exit := ends(t, p)
	require.Equal(t, "panic: boom", exit.Error)
	require.Contains(t, exit.Reason, "panic: boom; a call did not return within 1s of its end; its goroutine is abandoned")
}

func TestAFunctionWhoseCallsNeverReturnIsNotStartedForever(t *testing.T) {
	release := make(chan struct{})
	obedient := func(ctx context.Context, run FunctionRun) error {
		return new(sdk.Worker).Serve(ctx, run.Conn, run.Stopping,
			sdk.Embedding{Worker: run.Worker, Incarnation: run.Incarnation, Log: run.Log, Panicked: run.Crash})
	}
	s := open(t, func(c *Config) {
		c.Functions = map[string]Function{"other": obedient, "f": func(ctx context.Context, run FunctionRun) error {
			err := obedient(ctx, run)
			<-release
			return err
		}}
	})
	sp := kindsUnderTest[spec.KindFunction].spec(t)
	for i := range maxAbandoned {
		p := starts(t, s, launch(fmt.Sprintf("p/%d", i), 1, sp))
		p.Kill("enough")
	}
	eventually(t, func() bool { return s.AbandonedFunctions() == maxAbandoned && s.Live() == 0 },
		"the functions must be abandoned")
	startFails(t, s, launch("p/0", 2, sp),
		`16 ended workers of the function "f" still have running calls, of at most 16; `+
			`make the function return when its context ends`)
	another := sp
	another.Pool.Function = "other"
	starts(t, s, launch("q/0", 1, another))
	close(release)
	eventually(t, func() bool { return s.AbandonedFunctions() == 0 }, "the calls have returned")
	starts(t, s, launch("p/0", 3, sp))
}

func TestALimitOfAFunctionCannotBeApplied(t *testing.T) {
	k := kindsUnderTest[spec.KindFunction]
	p := begin(t, k.open(t), k.spec(t))
	_, err := p.ApplyLimits(1<<30, 0)
	require.ErrorContains(t, err, `is of the kind "function", whose limits cannot be changed while it runs`)
	require.Empty(t, p.LimitMechanisms())
}
