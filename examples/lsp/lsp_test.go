package lsp_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pool loads pool.toml from a copy of this folder with the server installed and the folder code as the project, as in
// the README.
func pool(t *testing.T) spec.Spec {
	t.Helper()
	folder := setup.Copy(t, ".")
	file := filepath.Join(folder, "pool.toml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(text, []byte(`"file:///srv/code"`)))
	text = bytes.Replace(text, []byte("file:///srv/code"), []byte(uriOf(filepath.Join(folder, "code"))), 1)
	require.NoError(t, os.WriteFile(file, text, 0o644))
	s, err := spec.Load(file)
	require.NoError(t, err)
	return s
}

func uriOf(path string) string { return "file://" + path }

// TestPyrightFindsNothing in the SDK, its clients and the programs of the examples. Some of their libraries have no
// types.
func TestPyrightFindsNothing(t *testing.T) {
	const python = "/usr/bin/python3" // has Debian's httpx, whose types the client uses
	need.PythonModule(t, python, "httpx")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	folder := setup.Copy(t, ".")
	library := filepath.Join(root, "sdk/python")
	var include []string // relative to the file
	for _, path := range []string{filepath.Join(library, "tempool"), filepath.Join(root, "examples")} {
		relative, err := filepath.Rel(folder, path)
		require.NoError(t, err)
		include = append(include, relative)
	}
	text, err := json.Marshal(object{"include": include, "exclude": []string{"**/node_modules"},
		"extraPaths": []string{library}, "reportMissingImports": false, "reportMissingModuleSource": false})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "pyrightconfig.json"), text, 0o600))
	check := exec.CommandContext(t.Context(), "node_modules/.bin/pyright", "--outputjson",
		"--pythonpath", python)
	check.Dir = folder
	output, err := check.Output()
	require.NoError(t, err, "%s", output)
	var found struct {
		Summary struct{ FilesAnalyzed, ErrorCount, WarningCount int }
	}
	require.NoError(t, json.Unmarshal(output, &found))
	require.Greater(t, found.Summary.FilesAnalyzed, 20)
	require.Zero(t, found.Summary.ErrorCount+found.Summary.WarningCount, "%s", output)
}

type object map[string]any

type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type symbol struct {
	Name           string `json:"name"`
	SelectionRange struct {
		Start position `json:"start"`
	} `json:"selectionRange"`
	Children []symbol `json:"children"`
}

func document(uri string) object { return object{"textDocument": object{"uri": uri}} }

func symbols(t *testing.T, p *process.Process, uri string) []symbol {
	t.Helper()
	var found []symbol
	setup.Call(t, p, "textDocument/documentSymbol", document(uri), &found)
	return found
}

// hover returns the server's hover text for the name at a position.
func hover(t *testing.T, p *process.Process, uri string, at position) string {
	t.Helper()
	var answer struct {
		Contents struct {
			Value string `json:"value"`
		} `json:"contents"`
	}
	setup.Call(t, p, "textDocument/hover", object{"textDocument": object{"uri": uri}, "position": at}, &answer)
	return answer.Contents.Value
}

// open sends the text of basket.py to the server, as an editor does, and returns the document's URI.
func open(t *testing.T, p *process.Process, sp spec.Spec) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("code", "basket.py"))
	require.NoError(t, err)
	uri := uriOf(filepath.Join(sp.Pool.Dir, "code", "basket.py"))
	notify(t, p, uri, string(text))
	return uri
}

func notify(t *testing.T, p *process.Process, uri, text string) {
	t.Helper()
	request := setup.Request(t, "textDocument/didOpen",
		object{"textDocument": object{"uri": uri, "languageId": "python", "version": 1, "text": text}})
	require.NoError(t, p.Conn().Notify(t.Context(), request))
}

func TestAWorkerAnswersAboutFilesAndTexts(t *testing.T) {
	sp := pool(t)
	p := setup.Start(t, setup.Host(t, nil), sp, 1)
	t.Run("the project's files", func(t *testing.T) {
		uri := uriOf(filepath.Join(sp.Pool.Dir, "code", "basket.py"))

		// The server usually has found the file when it is ready; on a fast machine it finds it when it is idle.
		idle, timeout := time.NewTicker(500*time.Millisecond), time.After(setup.Timeout)
		defer idle.Stop()
		found := symbols(t, p, uri)
		for len(found) == 0 {
			select {
			case <-idle.C:
				found = symbols(t, p, uri)
			case <-timeout:
				require.Fail(t, "the server has not found the project's file")
			}
		}
		require.Len(t, found, 1)
		require.Equal(t, "Basket", found[0].Name)
		require.Len(t, found[0].Children, 2)
		require.Equal(t, "prices", found[0].Children[0].Name)
		require.Equal(t, "total", found[0].Children[1].Name)

		text := hover(t, p, uri, found[0].Children[1].SelectionRange.Start)
		require.Contains(t, text, "total(self: Self@Basket) -> int")
		require.Contains(t, text, "The sum of all prices, in cents.")
	})
	t.Run("an unsaved text", func(t *testing.T) {
		uri := uriOf(filepath.Join(sp.Pool.Dir, "code", "unsaved.py"))
		require.Empty(t, symbols(t, p, uri))
		notify(t, p, uri, "from basket import Basket\n\nmine = Basket({'früh\\n': 3}).total()\n")
		found := symbols(t, p, uri)
		require.Len(t, found, 1)
		require.Equal(t, "mine", found[0].Name)
		require.Contains(t, hover(t, p, uri, found[0].SelectionRange.Start), "mine: int",
			"the server has also read basket.py")
	})
	t.Run("after a cancelled call", func(t *testing.T) {
		uri := open(t, p, sp)
		total := position{Line: 11, Character: 8}
		// The first request about a file may take seconds on a busy machine, and the server does not read the cancellation
		// before its end.
		require.NotEmpty(t, hover(t, p, uri, total))
		setup.Cancel(t, p, "textDocument/hover", object{"textDocument": object{"uri": uri}, "position": total})
		require.Len(t, symbols(t, p, uri), 1)
		require.NoError(t, p.Conn().Err())
	})
}

func TestAServerThatRequestsSettingsGetsDefaults(t *testing.T) {
	sp := pool(t)
	var params object
	require.NoError(t, json.Unmarshal(sp.Start.Warmup[0].Params, &params))
	// With this capability Pyright requests workspace/configuration and analyses nothing before the answer.
	params["capabilities"].(map[string]any)["workspace"] = object{"configuration": true, "workspaceFolders": true}
	var err error
	sp.Start.Warmup[0].Params, err = json.Marshal(params)
	require.NoError(t, err)
	p := setup.Start(t, setup.Host(t, nil), sp, 1)
	require.Len(t, symbols(t, p, open(t, p, sp)), 1)
	require.NoError(t, p.Conn().Err())
}
