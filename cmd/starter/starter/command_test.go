package starter

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool/internal/command"
	"github.com/tempool/tempool/process"
)

func TestMain(m *testing.M) {
	process.RunReaperIfAsked()
	goleak.VerifyTestMain(m)
}

// parse runs a command line and returns the options, or what it prints to standard error; ran is false if the command
// rejects it.
func parse(t *testing.T, args ...string) (o Options, ran bool, stderr string) {
	var out bytes.Buffer
	c := newCommand(io.Discard, func(_ context.Context, got Options) error {
		o, ran = got, true
		return nil
	})
	c.SetErr(&out)
	code := command.Execute(t.Context(), c, append([]string{}, args...))
	require.Equal(t, !ran, code == 2, out.String())
	o.Out = nil
	return o, ran, out.String()
}

func TestFlagsBecomeOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want Options
	}{
		{nil, Options{}},
		{[]string{"--once"}, Options{Once: true}},
		{[]string{"--address", "h:1", "--namespace", "n"}, Options{Address: "h:1", Namespace: "n"}},
		{[]string{"--port", "7000", "--ui-port=7001", "--fresh"}, Options{Port: 7000, UIPort: 7001, Fresh: true}},
		{[]string{"--pool", "p.toml", "--size", "2", "--listen", "127.0.0.1:9"},
			Options{PoolFile: "p.toml", Size: 2, Listen: "127.0.0.1:9"}},
	} {
		o, ran, _ := parse(t, c.args...)
		require.True(t, ran)
		require.Equal(t, c.want, o)
	}
}

func TestAWrongCommandLineIsAUsageError(t *testing.T) {
	for want, args := range map[string][]string{
		"unexpected argument":      {"python"},
		"unknown flag":             {"--pol", "x"},
		"--port is 0":              {"--port", "0"},
		"--ui-port is 65536":       {"--ui-port", "65536"},
		"invalid argument":         {"--port", "http"},
		"from 1 to 1000":           {"--size", "0"},
		"--listen is empty":        {"--listen", ""},
		"both 7000":                {"--port", "7000", "--ui-port", "7000"},
		"a running server":         {"--address", "h:1", "--fresh"},
		"the starter's own server": {"--address", "h:1", "--port", "7000"},
		"--fresh apply to":         {"--address", "h:1", "--ui-port", "7000"},
	} {
		_, ran, stderr := parse(t, args...)
		require.Contains(t, stderr, want, args)
		require.False(t, ran)
	}
}

func TestHelpHasFlagsAndExitCodes(t *testing.T) {
	var help bytes.Buffer
	require.Zero(t, command.Execute(t.Context(), newCommand(&help, Run), []string{"--help"}))
	for _, word := range []string{"--once", "--fresh", "--address", "Exit codes", "TEMPORAL_ADDRESS"} {
		require.Contains(t, help.String(), word)
	}
}

func TestTheGoCommandIsRecognizedByName(t *testing.T) {
	require.False(t, isGo(os.Getpid()))
	require.False(t, isGo(-1))
	sleeper, err := exec.LookPath("sleep")
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "go")
	require.NoError(t, os.Symlink(sleeper, link))
	command := exec.Command(link, "60")
	require.NoError(t, command.Start())
	defer func() {
		require.NoError(t, command.Process.Kill())
		require.Error(t, command.Wait(), "it was killed")
	}()
	require.Eventually(t, func() bool { return isGo(command.Process.Pid) }, time.Minute, 10*time.Millisecond)
}
