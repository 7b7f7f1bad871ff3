package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/internal/logging/logtest"
	"github.com/tempool/tempool/internal/need"
)

// doctor is the result of tempool doctor.
type doctor struct {
	Problems int
	Findings []struct{ Level, Check, Subject, Message, Action string }
}

// doctor runs tempool doctor, whatever its exit code, which must fit the result.
func (env *testEnv) doctor(args ...string) (result doctor) {
	env.t.Helper()
	var stdout, stderr logtest.Log
	code := env.tempool(env.t.Context(), &stdout, &stderr,
		append([]string{"doctor", "-o", "json", "--timeout", "10s"}, args...)...)
	require.NoError(env.t, json.Unmarshal([]byte(stdout.String()), &result), "%s%s", &stdout, &stderr)
	require.Equal(env.t, result.Problems > 0, code == cli.ExitFailed, "%s", stdout.String())
	return result
}

// has reports whether a finding is among the result.
func (d doctor) has(level, check, says string) bool {
	for _, f := range d.Findings {
		if f.Level == level && f.Check == check && strings.Contains(f.Subject+": "+f.Message, says) {
			return true
		}
	}
	return false
}

// awaitDoctor waits until a result is as it should be.
func (env *testEnv) awaitDoctor(holds func(doctor) bool, args ...string) (result doctor) {
	env.t.Helper()
	require.Eventually(env.t, func() bool {
		result = env.doctor(args...)
		return holds(result)
	}, waitTimeout, 500*time.Millisecond, "%+v", &result)
	return result
}

func (env *testEnv) awaitFinding(level, check, says string, args ...string) doctor {
	env.t.Helper()
	return env.awaitDoctor(func(d doctor) bool { return d.has(level, check, says) }, args...)
}

func TestDoctorFindsRealConditions(t *testing.T) {
	need.Root(t) // doctor warns of it
	env := newEnv(t)
	result := env.awaitFinding("problem", "agents", "none is running")
	require.True(t, result.has("ok", "temporal", "answers"), "%+v", result)
	env.awaitFinding("problem", "namespace", "nosuch", "--namespace", "nosuch")
	require.True(t, env.doctor("--address", "127.0.0.1:1").has("problem", "temporal", "127.0.0.1:1"))
	env.repeat(func(ctx context.Context) error {
		_, err := env.client.Temporal().WorkflowService().RegisterNamespace(ctx,
			&workflowservice.RegisterNamespaceRequest{
				Namespace: "bare", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
			})
		if _, registered := errors.AsType[*serviceerror.NamespaceAlreadyExists](err); registered {
			return nil
		}
		return err
	})
	env.awaitFinding("problem", "search_attributes", "missing", "--namespace", "bare")

	env.startAgent("fine")
	env.awaitDoctor(func(d doctor) bool { // a heartbeat may come late, and an answer of the server, too
		return d.Problems == 0 && d.has("ok", "gateway", "host fine") && d.has("ok", "search_attributes", "") &&
			d.has("ok", "agents", "host fine: agent "+buildinfo.Read().Version) && !d.has("warning", "clock", "")
	})
	pool := env.startPool(echoSpec("kept", 1))
	env.awaitFinding("ok", "pools", "pool kept: 1 of 1 ready")
	env.awaitFinding("warning", "root", "pool kept") // the agent of this test runs as root

	small := filepath.Join(env.dir, "small")
	require.NoError(t, os.Mkdir(small, 0o700))
	need.RightTo(t, "mount a file system", syscall.Mount("tmpfs", small, "tmpfs", 0, "size=16m,mode=700"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(small, syscall.MNT_DETACH)) })
	poor := env.startAgentBy([]string{"sh", "-c", `ulimit -n 300; exec "$0" "$@"`}, "poor", "--state-dir",
		filepath.Join(small, "state"), "--capacity", "50")
	result = env.awaitFinding("problem", "disk", "host poor")
	require.True(t, result.has("warning", "open_files", "the agent may have 300 open"), "%+v", result)

	poor.kill()
	env.awaitFinding("warning", "agents", "host poor: its agent does not heartbeat (lost")
	env.awaitDoctor(func(d doctor) bool { return d.Problems == 0 })
	env.waitReady(pool, 1)
}
