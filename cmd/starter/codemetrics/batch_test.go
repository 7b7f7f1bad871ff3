package codemetrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestFilesArePackedWithinBounds(t *testing.T) {
	folder := t.TempDir()
	var paths []string
	for i, size := range []int{10, 90, 40, 40, 40, 300, 0} {
		path := filepath.Join(folder, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", size)), 0o600))
		paths = append(paths, path)
	}
	var packed [][]string
	for _, b := range pack(paths, 3, 100) {
		var names []string
		for _, path := range b.paths {
			names = append(names, filepath.Base(path))
		}
		packed = append(packed, names)
	}
	require.Equal(t, [][]string{{"5"}, {"1"}, {"2", "3"}, {"4", "0", "6"}}, packed)
	require.Empty(t, pack(nil, 3, 100))
}

func TestClassifyFailures(t *testing.T) {
	coded := func(code api.Code, started bool) error {
		return fmt.Errorf("call: %w", &api.Error{Code: code, Started: started})
	}
	for _, c := range []struct {
		err  error
		want failure
	}{
		{coded(api.CodeWorkerCrashed, true), failure{action: dropLease, started: true}},
		{coded(api.CodeLeaseFenced, false), failure{action: dropLease}},
		{coded(api.CodeLeaseNotFound, false), failure{action: dropLease}},
		{coded(api.CodeDeadlineExceeded, true), failure{action: replaceWorker, started: true}},
		{coded(api.CodeDeadlineExceeded, false), failure{action: returnLease}},
		{coded(api.CodeWorkerError, true), failure{action: keepLease, started: true}},
		{coded(api.CodeDraining, false), failure{action: returnLease}},
		{coded(api.CodeUnavailable, true), failure{action: returnLease, started: true}},
		{coded(api.CodeInvalid, false), failure{action: returnLease, permanent: true}},
		{errors.New("unheard of"), failure{action: returnLease}},
	} {
		require.Equal(t, c.want, classify(c.err), c.err.Error())
	}
}

func TestAnAnswerIsCountedAsAWholeOrNotAtAll(t *testing.T) {
	sum := newTotals()
	require.NoError(t, sum.add(batch{paths: numbered(2)}, measured(numbered(2))))
	before := sum.total()
	for name, answer := range map[string][]FileMeasure{
		"too short":     measured(numbered(1)),
		"too long":      measured(numbered(3)),
		"another file":  measured([]string{"/f/7.py", "/f/9.py"}),
		"counted again": measured([]string{"/f/7.py", "/f/1.py"}),
	} {
		require.Error(t, sum.add(batch{paths: []string{"/f/7.py", "/f/1.py"}}, answer), name)
	}
	require.Equal(t, before, sum.total())
}

func TestASummaryWithoutFunctionsOrTimeHasZeroRates(t *testing.T) {
	require.Zero(t, Summary{}.MeanComplexity())
	require.Zero(t, Summary{Files: 3}.FilesPerSecond())
	require.Equal(t, 2.5, Summary{Functions: 2, Complexity: 5}.MeanComplexity())
	require.Equal(t, 4.0, Summary{Files: 2, Took: 500 * time.Millisecond}.FilesPerSecond())
}

func TestTheStandardLibraryIsFound(t *testing.T) {
	library, err := StandardLibrary(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, library.Version)
	require.Greater(t, len(library.Files), 100)
	require.Contains(t, library.Files, filepath.Join(library.Folder, "ast.py"))
	for _, path := range library.Files {
		require.NotContains(t, path, "-packages")
		require.Equal(t, ".py", filepath.Ext(path))
	}
}

func TestWithoutPythonTheErrorSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StandardLibrary(t.Context())
	require.ErrorContains(t, err, "install Python 3.9 or newer")
}

func TestAFailingPythonIsNamed(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "python3"), []byte("#!/bin/sh\necho no library >&2\nexit 1\n"), 0o700))
	t.Setenv("PATH", folder)
	_, err := StandardLibrary(t.Context())
	require.ErrorContains(t, err, filepath.Join(folder, "python3"))
	require.ErrorContains(t, err, "no library")
}
