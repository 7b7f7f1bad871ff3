package dev

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/spec"
)

func TestTheExampleIsUnpackedWithItsSDK(t *testing.T) {
	root := t.TempDir()
	file, err := unpackExample(root)
	require.NoError(t, err)
	s, err := spec.Load(file)
	require.NoError(t, err)
	require.Equal(t, exampleName, s.Pool.Name)
	require.Equal(t, filepath.Dir(file), s.Pool.Dir)
	require.FileExists(t, filepath.Join(s.Pool.Dir, s.Pool.Command[1]))
	require.FileExists(t, filepath.Join(s.Pool.Dir, "complexity.py"))
	require.FileExists(t, filepath.Join(s.Pool.Dir, s.Pool.Env["PYTHONPATH"], "tempool", "__init__.py"))

	worker := filepath.Join(filepath.Dir(file), "worker.py")
	whole, err := os.ReadFile(worker)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(worker, []byte("changed"), 0o600))
	again, err := unpackExample(root)
	require.NoError(t, err)
	require.Equal(t, file, again)
	restored, err := os.ReadFile(worker)
	require.NoError(t, err)
	require.Equal(t, whole, restored)
}

func TestOnlyOneStarterUsesTheDataDir(t *testing.T) {
	cache := t.TempDir()
	first, err := openDataDir(cache)
	require.NoError(t, err)
	_, err = openDataDir(cache)
	require.ErrorContains(t, err, "is already running")
	require.NoError(t, first.close())
	second, err := openDataDir(cache)
	require.NoError(t, err)
	require.FileExists(t, second.log.Name()+".before")
	require.NoError(t, second.close())
}

func TestWithoutATerminalEachTenPercentIsALine(t *testing.T) {
	var out bytes.Buffer
	show := (&starter{options: Options{Out: &out}}).progress(40)
	for files := 1; files <= 40; files += 13 {
		show(codemetrics.Summary{Files: files})
	}
	require.Equal(t, " 30 %  14 of 40 files\n 60 %  27 of 40 files\n100 %  40 of 40 files\n", out.String())
}

func TestTheSummaryHasTheResults(t *testing.T) {
	text := summaryText(codemetrics.Summary{
		Files: 1790, Took: 2 * time.Second, Retried: 1, Problems: 3,
		Counts: codemetrics.Counts{Bytes: 31525224, Lines: 858237, Functions: 4, Classes: 2, Complexity: 10},
	})
	for _, words := range []string{
		"1790, 3 of which do not parse\n", "31525224\n", "858237\n", "10 in all, 2.50 for each function",
		"2s, 895 files a second", "calls retried          1",
	} {
		require.Contains(t, text, words)
	}
}

func TestOtherHostsMayRunThePool(t *testing.T) {
	status := api.PoolStatus{Size: 2, Workers: []api.RosterEntry{{Slot: 0, Host: hostID()}, {Slot: 1}}}
	require.True(t, ownHostOnly(status))
	status.Workers[1].Host = "elsewhere"
	require.False(t, ownHostOnly(status))
}

func TestTheCommandLineNamesAnUnusualServer(t *testing.T) {
	connected, err := tempool.Dial(t.Context(),
		tempool.Options{Gateways: []string{"http://127.0.0.1:1"}, Namespace: "default"})
	require.NoError(t, err)
	defer connected.Close()
	s := &starter{client: connected}
	t.Setenv("TEMPORAL_ADDRESS", "h:7233")
	for address, want := range map[string]string{"localhost:7233": "tempool", "127.0.0.1:7233": "tempool",
		"127.0.0.1:7234": "TEMPORAL_ADDRESS=127.0.0.1:7234 tempool", "h:7233": "tempool"} {
		s.temporal.Address = address
		require.Equal(t, want, s.ctl())
	}
}

func TestTheAgentHasThePoolsLabelAndTheDefault(t *testing.T) {
	require.Equal(t, []string{"default"}, labels(""))
	require.Equal(t, []string{"default"}, labels("default"))
	require.Equal(t, []string{"default", "gpu"}, labels("gpu"))
}
