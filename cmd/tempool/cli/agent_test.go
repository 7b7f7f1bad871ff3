package cli

import (
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
