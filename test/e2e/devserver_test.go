//go:build !cluster

package e2e

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/devserver"
)

// server is the Temporal server of one test: a development server with a SQLite file.
type server = *devserver.Server

// takesArguments is whether servers of this build have the arguments that a test gives them.
const takesArguments = true

func startServer(t *testing.T, dir string, arguments ...string) server {
	t.Helper()
	s, err := devserver.Start(t.Context(), devserver.Options{
		DBFile: filepath.Join(dir, "temporal.db"), UIPort: devserver.NoUI,
		Progress: func(sentence string) { t.Log(sentence) }, ExtraArgs: arguments,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		select {
		case <-s.Done():
			t.Logf("Temporal has exited; the end of its output:\n%s", tail([]byte(s.LogTail())))
		default:
			if t.Failed() {
				t.Logf("the end of Temporal's output:\n%s", tail([]byte(s.LogTail())))
			}
		}
		require.NoError(t, s.Stop(context.Background()))
	})
	return s
}
