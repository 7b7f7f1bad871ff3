package codemetrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// measure runs the job on n files, and each of them twice, at a gateway that answers as workers do, but for calls that
// answer answers. Every file has 10 bytes, 2 lines and one function whose complexity is the file's number.
func measure(t *testing.T, n int, patience time.Duration,
	answer func(w http.ResponseWriter, measures []FileMeasure) bool) (Summary, Summary, error) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var params struct{ Paths []string }
		_ = json.NewDecoder(r.Body).Decode(&params)
		var measures []FileMeasure
		for _, path := range params.Paths {
			var number int
			_, _ = fmt.Sscanf(path, "/f/%d.py", &number)
			measures = append(measures, FileMeasure{
				Path: path, Counts: Counts{Bytes: 10, Lines: 2, Functions: 1, Complexity: int64(number)},
			})
		}
		if answer == nil || !answer(w, measures) {
			_ = json.NewEncoder(w).Encode(measures)
		}
	}))
	defer server.Close()
	client, err := tempool.Dial(t.Context(), tempool.Options{Gateways: []string{server.URL}})
	require.NoError(t, err)
	defer client.Close()
	var files []string
	for i := range 2 * n {
		files = append(files, fmt.Sprintf("/f/%d.py", i%n))
	}
	var progress Summary
	sum, err := Run(t.Context(), Config{
		Client: client, Pool: "p", Files: files, Concurrency: 3, Patience: patience,
		Progress: func(sum Summary) { progress = sum },
	})
	return sum, progress, err
}

func refuse(w http.ResponseWriter, status int, code api.Code) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "refused by the test", "started": true})
}

func TestEveryFileIsCountedOnceWhateverFails(t *testing.T) {
	const files = 110
	for name, fail := range map[string]func(w http.ResponseWriter, measures []FileMeasure){
		"nothing":             nil,
		"the worker crashed":  func(w http.ResponseWriter, _ []FileMeasure) { refuse(w, 502, api.CodeWorkerCrashed) },
		"the method failed":   func(w http.ResponseWriter, _ []FileMeasure) { refuse(w, 500, api.CodeWorkerError) },
		"the gateway died":    func(http.ResponseWriter, []FileMeasure) { panic(http.ErrAbortHandler) },
		"half of the answer":  func(w http.ResponseWriter, m []FileMeasure) { _ = json.NewEncoder(w).Encode(m[:len(m)/2]) },
		"a file twice":        func(w http.ResponseWriter, m []FileMeasure) { m[0] = m[1]; _ = json.NewEncoder(w).Encode(m) },
		"an answer cut short": func(w http.ResponseWriter, _ []FileMeasure) { _, _ = w.Write([]byte(`[{"path":`)) },
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			s, last, err := measure(t, files, time.Minute, func(w http.ResponseWriter, measures []FileMeasure) bool {
				if fail == nil || calls.Add(1)%3 != 1 {
					return false
				}
				fail(w, measures)
				return true
			})
			require.NoError(t, err)
			require.Equal(t, files, s.Files)
			require.EqualValues(t, 10*files, s.Bytes)
			require.EqualValues(t, files*(files-1)/2, s.Complexity)
			require.Equal(t, fail != nil, s.Retried > 0)
			require.Equal(t, files, last.Files)
			require.Equal(t, s.Retried, last.Retried)
		})
	}
}

func TestAJobThatCannotSucceedNamesTheFilesAndTheCause(t *testing.T) {
	for code, calls := range map[api.Code]int{api.CodePoolNotFound: 1, api.CodeInvalid: 1, api.CodeWorkerError: 2} {
		var asked atomic.Int64
		_, _, err := measure(t, 2, time.Nanosecond, func(w http.ResponseWriter, _ []FileMeasure) bool {
			asked.Add(1)
			refuse(w, 500, code)
			return true
		})
		require.Equal(t, code, api.CodeOf(err))
		require.ErrorContains(t, err, "measure /f/0.py and 1 more files")
		require.LessOrEqual(t, asked.Load(), int64(calls))
	}
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
	require.NoError(t, os.WriteFile(filepath.Join(folder, "python3"), []byte("#!/bin/sh\necho no library >&2\nexit 1\n"),
		0o700))
	t.Setenv("PATH", folder)
	_, err := StandardLibrary(t.Context())
	require.ErrorContains(t, err, filepath.Join(folder, "python3"))
	require.ErrorContains(t, err, "no library")
}
