package mcp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pool loads pool.toml from a copy of this folder with the server installed.
func pool(t *testing.T) spec.Spec {
	t.Helper()
	s, err := spec.Load(filepath.Join(setup.Copy(t, "."), "pool.toml"))
	require.NoError(t, err)
	return s
}

type toolResult struct {
	IsError bool `json:"isError"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
}

type arguments map[string]any

// use calls a tool and returns its text.
func use(t *testing.T, p *process.Process, tool string, args arguments) (text string, failed bool) {
	t.Helper()
	var result toolResult
	setup.Call(t, p, "tools/call", map[string]any{"name": tool, "arguments": args}, &result)
	require.Len(t, result.Content, 1)
	require.Equal(t, "text", result.Content[0].Type)
	return result.Content[0].Text, result.IsError
}

func TestAWorkerListsItsToolsAndUsesThemOnRealFiles(t *testing.T) {
	sp := pool(t)
	p := setup.Start(t, setup.Host(t, nil), sp, 1)
	var listed struct {
		Tools []struct {
			Name        string         `json:"name"`
			InputSchema map[string]any `json:"inputSchema"`
		} `json:"tools"`
	}
	setup.Call(t, p, "tools/list", nil, &listed)
	names := make([]string, 0, len(listed.Tools))
	for _, tool := range listed.Tools {
		require.Equal(t, "object", tool.InputSchema["type"], tool.Name)
		names = append(names, tool.Name)
	}
	require.Subset(t, names, []string{"read_text_file", "write_file", "list_directory", "search_files"})

	want, err := os.ReadFile(filepath.Join("files", "welcome.md"))
	require.NoError(t, err)
	got, failed := use(t, p, "read_text_file", arguments{"path": "welcome.md"})
	require.False(t, failed, got)
	require.Equal(t, string(want), got)

	// A line end, a tab and non-ASCII letters: the message still is one line.
	const note = "first\nsecond\twith ünïcödé and 語\n"
	output, failed := use(t, p, "write_file", arguments{"path": "note.txt", "content": note})
	require.False(t, failed, output)
	written, err := os.ReadFile(filepath.Join(sp.Pool.Dir, "files", "note.txt"))
	require.NoError(t, err)
	require.Equal(t, note, string(written))

	output, failed = use(t, p, "read_text_file", arguments{"path": "/etc/passwd"})
	require.True(t, failed, "a file outside the folder was read")
	require.Contains(t, output, "Access denied")
}

// The server does not answer a call once it knows that the call is cancelled, so one that takes longer costs the
// process.
func TestACancelledCallEndsWithItsAnswerOrWithTheProcess(t *testing.T) {
	sp := pool(t)
	for n := range 300 { // the search below then takes longer than the cancellation
		require.NoError(t, os.WriteFile(filepath.Join(sp.Pool.Dir, "files", fmt.Sprintf("%d.txt", n)), nil, 0o644))
	}
	p := setup.Start(t, setup.Host(t, nil), sp, 1)
	setup.Cancel(t, p, "tools/call",
		map[string]any{"name": "search_files", "arguments": arguments{"path": ".", "pattern": "**"}})
	next := setup.Request(t, "tools/call",
		map[string]any{"name": "read_text_file", "arguments": arguments{"path": "7.txt"}})
	if _, err := p.Conn().Call(t.Context(), next); err != nil {
		var unsent *wire.CallError
		require.ErrorAs(t, err, &unsent)
		require.False(t, unsent.Started, "the next call must not begin before the cancelled one has ended")
		require.ErrorIs(t, err, wire.ErrUnanswered)
		return
	}
	text, failed := use(t, p, "read_text_file", arguments{"path": "7.txt"})
	require.False(t, failed, text)
	require.Empty(t, text)
	require.NoError(t, p.Conn().Err())
}
