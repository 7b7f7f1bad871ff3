package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/lint/docs"
)

func TestAGatewayForOtherMachinesNeedsFlagsThatTheErrorNames(t *testing.T) {
	run := func(args ...string) result {
		return ctl(t, newFakeControlPlane(),
			append([]string{"agent", "--state-dir", t.TempDir(), "--address", "127.0.0.1:1"}, args...)...)
	}
	r := run("--listen", "0.0.0.0:0")
	requireCode(t, ExitFailed, r)
	require.Contains(t, r.err, "set --tls-cert and --tls-key, and --tokens or --client-ca", "before anything is dialled")
	t.Setenv("TEMPOOL_LISTEN", "10.9.8.7:7460")
	t.Setenv("TEMPOOL_TLS_CERT", "nowhere.pem")
	t.Setenv("TEMPOOL_TLS_KEY", "nowhere.key")
	require.Contains(t, run().err, "cannot load --tls-cert nowhere.pem")
	require.Contains(t, run("--tls-cert", "other.pem").err, "cannot load --tls-cert other.pem",
		"a flag wins over the environment")
	t.Setenv("TEMPOOL_TLS_CERT", "")
	t.Setenv("TEMPOOL_TLS_KEY", "")
	require.Contains(t, run("--listen", "nowhere").err, "--listen is \"nowhere\"")
	t.Setenv("TEMPOOL_CAPACITY", "many")
	r = run()
	requireCode(t, ExitUsage, r)
	require.Contains(t, r.err, `TEMPOOL_CAPACITY is "many"`)
}

func TestSettingsComeFromFlagsTheEnvironmentAndAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.toml")
	run := func(text string, args ...string) result {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return ctl(t, newFakeControlPlane(), append([]string{"agent", "--config", file}, args...)...)
	}
	t.Setenv("TEMPOOL_HOST_ID", "by-variable")
	t.Setenv("TEMPORAL_ADDRESS", "variable:1")
	r := run("host_id = \"by-file\"\naddress = \"file:1\"\nlabels = [\"a\", \"b\"]\ncapacity = 3\n"+
		"keep_processes = true\nlog_size = \"2MiB\"\n", "--capacity", "5", "--print-config")
	requireCode(t, ExitOK, r)
	for line, from := range map[string]string{`host_id = "by-variable"`: "TEMPOOL_HOST_ID",
		`address = "variable:1"`: "TEMPORAL_ADDRESS", `labels = ["a", "b"]`: file + ":3", "capacity = 5": "--capacity",
		"keep_processes = true": file + ":5", `log_size = "2MiB"`: file + ":6", `log_level = "info"`: "default"} {
		require.Regexp(t, "(?m)^"+regexp.QuoteMeta(line)+" +# "+regexp.QuoteMeta(from)+"$", r.out)
	}
	again := run(r.out, "--print-config", "-o", "json") // what it prints is such a file
	requireCode(t, ExitOK, again)
	require.Contains(t, again.out, `"value": 5`)

	for text, c := range map[string]struct {
		exit int
		says string
	}{
		"\ncapcity = 3":         {ExitFailed, file + ":2: capcity: unknown key; nearest known key: capacity"},
		"[agent]\ncapacity = 3": {ExitFailed, file + ":1: agent: unknown key"},
		"capacity = \"many\"":   {ExitFailed, file + ":1: capacity: many is not allowed; allowed: a whole number"},
		"labels = \"gpu\"":      {ExitFailed, file + ":1: labels: gpu is not allowed; allowed: a list of strings"},
		"log_level = \"loud\"": {ExitFailed,
			file + ":1: log_level: \"loud\" is not allowed: write debug, info, warn or error"},
		"capacity = 3\ncapacity":      {ExitFailed, file + ":2: invalid TOML"},
		"capacity = 0":                {ExitUsage, "--capacity is 0; it must be at least 1"},
		"max_connections = 0":         {ExitUsage, "--max-connections is 0; it must be at least 1"},
		"max_client_connections = -1": {ExitUsage, "--max-client-connections is -1; it must be at least 0"},
		"body_memory = \"0\"":         {ExitUsage, "--body-memory is 0B; it must be at least 1B"},
		"log_size = \"0\"":            {ExitUsage, "--log-size is 0B; it must be at least 1MiB"},
	} {
		r := run(text, "--check")
		requireCode(t, c.exit, r)
		require.Contains(t, r.err, c.says)
	}
	require.Equal(t, "the settings are valid\n", run("capacity = 3", "--check", "--state-dir", t.TempDir()).out)
}

func TestTheManualListsExactlyTheFlags(t *testing.T) {
	listed := map[string]bool{}
	for _, cell := range docs.FirstColumn(t, docs.Read(t, "docs/operations/deploy.md"), "| flag | meaning |") {
		for _, flag := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(cell, -1) {
			listed[flag[1]] = true
		}
	}
	want := map[string]bool{"address": true, "namespace": true, "payload-keys": true} // which all commands have
	usages := (&app{}).agentCommand().LocalNonPersistentFlags().FlagUsages()
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(usages, -1) {
		want[flag[1]] = true
	}
	require.Equal(t, want, listed)
}
