package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/lifecycle"
)

// terminal is a terminal of tmux, on a server of its own.
type terminal struct {
	t      *testing.T
	socket string
}

// startTerminal runs a command in a terminal.
func startTerminal(t *testing.T, dir string, environment []string, command ...string) terminal {
	t.Helper()
	term := terminal{t, filepath.Join(dir, "tmux")}
	args := []string{"-S", term.socket, "-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "30", "env"}
	cmd := exec.CommandContext(t.Context(), "tmux", append(append(args, environment...), command...)...)
	cmd.Env = append(os.Environ(), "TMUX=", "TERM=xterm-256color")
	outputOf(t, cmd)
	// it may have ended with the command
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	return term
}

// run runs a command of tmux. It fails once the terminal's command has ended.
func (term terminal) run(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	return string(out), err
}

func (term terminal) keys(keys ...string) {
	term.t.Helper()
	out, err := term.run(append([]string{"send-keys"}, keys...)...)
	require.NoError(term.t, err, out)
}

// shows waits until all these are on the screen.
func (term terminal) shows(texts ...string) (screen string) {
	term.t.Helper()
	defer func() {
		if term.t.Failed() {
			term.t.Logf("the screen:\n%s", screen)
		}
	}()
	for _, text := range texts {
		require.Eventually(term.t, func() bool {
			screen, _ = term.run("capture-pane", "-p")
			return strings.Contains(screen, text)
		}, waitTimeout, 100*time.Millisecond, "no %q", text)
	}
	return screen
}

func TestTopOnATerminal(t *testing.T) {
	need.Program(t, "tmux")
	env := oneHost(t, "top")
	pool := env.startPool(echoSpec("screen", 2))
	before := env.waitReady(pool, 2)
	term := startTerminal(t, env.dir, []string{ctlVariable + "=1"},
		os.Args[0], "top", "--address", env.server.Address(), "--namespace", env.server.Namespace())

	term.shows("2/2 ready", "screen/0", "screen/1", "q quit")
	term.keys("/")
	term.keys("-l", "screen/1")
	term.keys("Enter")
	require.NotContains(t, term.shows(`1 match "screen/1"`), "screen/0")
	term.keys("Enter")
	term.shows("worker of screen/1", `"health": "healthy"`)
	term.keys("l")
	term.shows("log of screen/1", "tempool: started")
	term.keys("h")
	term.shows("history of screen/1", "WHEN")
	term.keys("r")
	term.shows("Restart screen/1?")
	term.keys("y")
	term.shows("restarting screen/1")
	env.waitWorker(pool, 1, "was not restarted by the key", func(w api.WorkerState) bool {
		return w.State == lifecycle.Ready && w.Incarnation > before.Workers[1].Incarnation
	})
	term.keys("Escape")
	term.shows(`1 match "screen/1"`)
	term.keys("Escape")
	term.shows("2/2 ready", "screen/0")

	require.NoError(t, env.server.Kill())
	term.shows("not current, retrying: ", "screen/0")
	require.NoError(t, env.server.Restart(t.Context()))
	require.Eventually(t, func() bool {
		screen, err := term.run("capture-pane", "-p")
		return err == nil && strings.Contains(screen, "2/2 ready") && !strings.Contains(screen, "not current")
	}, waitTimeout, 100*time.Millisecond, "it continues when Temporal is back")

	term.keys("q")
	require.Eventually(t, func() bool {
		_, err := term.run("has-session")
		return err != nil
	}, waitTimeout, 50*time.Millisecond, "q ends tempool, and with it the terminal")
}
