package dev

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/spec"
)

func TestFilesOfOtherVersionsAreRemoved(t *testing.T) {
	root := t.TempDir()
	file, err := unpackExample(root)
	require.NoError(t, err)
	for _, name := range []string{"0123456789ab/examples", "mine", "0123456789abcdef"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "ba9876543210"), nil, 0o600))
	require.NoError(t, removeOlder(root, file))
	require.FileExists(t, file)
	require.NoDirExists(t, filepath.Join(root, "0123456789ab"))
	require.DirExists(t, filepath.Join(root, "mine"), "not created by tempool dev")
	require.DirExists(t, filepath.Join(root, "0123456789abcdef"))
	require.FileExists(t, filepath.Join(root, "ba9876543210"))
}

func TestTheExampleIsUnpackedWithItsSDK(t *testing.T) {
	root := t.TempDir()
	file, err := unpackExample(root)
	require.NoError(t, err)
	s, err := spec.Load(file)
	require.NoError(t, err)
	require.Equal(t, exampleName, s.Pool.Name)
	require.Equal(t, filepath.Dir(file), s.Pool.Dir)
	require.FileExists(t, filepath.Join(s.Pool.Dir, s.Pool.Command[1]))
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

func TestTheFingerprintDependsOnNamesAndContent(t *testing.T) {
	one := fingerprint(map[string][]byte{"a": []byte("1"), "b": []byte("2")})
	require.Equal(t, one, fingerprint(map[string][]byte{"b": []byte("2"), "a": []byte("1")}))
	require.NotEqual(t, one, fingerprint(map[string][]byte{"a": []byte("1"), "b": []byte("3")}))
	require.NotEqual(t, one, fingerprint(map[string][]byte{"a": []byte("1"), "c": []byte("2")}))
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
	require.FileExists(t, second.logPath+".before")
	require.NoError(t, second.close())
}

func TestTheDatabaseIsRemovedWithItsJournals(t *testing.T) {
	f, err := openDataDir(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, f.close()) }()
	require.NoError(t, f.removeDatabase(), "there is no database yet")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.WriteFile(f.database()+suffix, nil, 0o600))
	}
	require.NoError(t, f.removeDatabase())
	left, err := filepath.Glob(f.database() + "*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWithoutATerminalEachTenPercentIsALine(t *testing.T) {
	var out bytes.Buffer
	show, end := (&screen{out: &out}).progress(40)
	for files := 1; files <= 40; files += 13 {
		show(codemetrics.Summary{Files: files}, 40)
	}
	end()
	require.Equal(t, " 30 %  14 of 40 files\n 60 %  27 of 40 files\n100 %  40 of 40 files\n", out.String())
}

func TestTheSummaryHasTheResults(t *testing.T) {
	text := summaryText(codemetrics.Summary{
		Files: 1790, Took: 2 * time.Second, Calls: 7, Retried: 1, Problems: 1,
		Counts: codemetrics.Counts{
			Bytes: 31525224, Lines: 858237, Functions: 4, Classes: 2, Complexity: 10,
			Worst: []codemetrics.Function{{Path: "/lib/re/_parser.py", Name: "_parse", Line: 516, Complexity: 123}},
		},
	}, "/lib", 3)
	for _, words := range []string{
		"1,790\n", "31,525,224", "858,237", "10 in all, 2.50 for each function", "2s, 895 files a second",
		"7, 1 retried", "worker restarts        3", "_parse  re/_parser.py:516",
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

func TestTheDefaultAddressIsRecognized(t *testing.T) {
	for address, want := range map[string]bool{"": true, "localhost:7233": true, "127.0.0.1:7233": true,
		"127.0.0.1:7234": false, "h:7233": false, "nonsense": false} {
		require.Equal(t, want, isDefaultAddress(address), address)
	}
}

func TestTheAgentHasThePoolsLabelAndTheDefault(t *testing.T) {
	require.Equal(t, []string{"default"}, labels(""))
	require.Equal(t, []string{"default"}, labels("default"))
	require.Equal(t, []string{"default", "gpu"}, labels("gpu"))
}
