package agentcmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/command"
)

func TestAGatewayForOtherMachinesNeedsFlagsThatTheErrorNames(t *testing.T) {
	run := func(args ...string) (int, string) {
		var out strings.Builder
		c := newCommand()
		c.SetErr(&out)
		code := command.Execute(t.Context(), c, append(args, "--state-dir", t.TempDir(), "--address", "127.0.0.1:1"))
		return code, out.String()
	}
	code, text := run("--listen", "0.0.0.0:0")
	require.Equal(t, 1, code)
	require.Contains(t, text, "set --tls-cert and --tls-key, and --tokens or --client-ca", "before anything is dialled")
	t.Setenv("TEMPOOL_LISTEN", "10.9.8.7:7460")
	t.Setenv("TEMPOOL_TLS_CERT", "nowhere.pem")
	t.Setenv("TEMPOOL_TLS_KEY", "nowhere.key")
	code, text = run()
	require.Equal(t, 1, code)
	require.Contains(t, text, "cannot load --tls-cert nowhere.pem")
	code, text = run("--tls-cert", "other.pem")
	require.Equal(t, 1, code)
	require.Contains(t, text, "cannot load --tls-cert other.pem", "a flag wins over the environment")
	t.Setenv("TEMPOOL_TLS_CERT", "")
	t.Setenv("TEMPOOL_TLS_KEY", "")
	code, text = run("--listen", "nowhere")
	require.Equal(t, 1, code)
	require.Contains(t, text, "--listen is \"nowhere\"")
}
