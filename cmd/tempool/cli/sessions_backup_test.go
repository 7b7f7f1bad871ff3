package cli

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const backupText = `{"format":"tempool-sessions","format_version":1,"pool":"python",` +
	`"exported_at":"2026-03-04T12:00:00Z"}` + "\n" + `{"sessions":0}` + "\n"

func TestABackupIsExportedAndImported(t *testing.T) {
	const export, load = "GET /v1/pools/python/sessions/export", "POST /v1/pools/python/sessions/import?any_pool="
	backup, counts := strings.TrimSpace(backupText), `200 {"created":3,"replaced":2,"kept":1,"expired":0}`
	endpoint, asked := answering(t, "tcp", map[string]string{export: "200 " + backupText,
		load + "false " + backup: counts, load + "true " + backup: counts})
	path := filepath.Join(t.TempDir(), "backup")
	r := succeed(t, nil, "sessions", "export", "python", path, "--gateway", endpoint)
	require.Equal(t, "exported 0 sessions to "+path+"\n", r.out)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, backupText, string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	r = succeed(t, nil, "sessions", "export", "python", "-", "--gateway", endpoint)
	require.Equal(t, backupText, r.out)

	r = succeed(t, nil, "sessions", "import", "python", path, "--gateway", endpoint)
	require.Equal(t, "imported "+path+": 3 created, 2 replaced, 1 kept, 0 expired\n", r.out)
	r = succeed(t, nil, "sessions", "import", "python", path, "--any-pool", "--gateway", endpoint, "-o", "json")
	require.JSONEq(t, `{"created":3,"replaced":2,"kept":1,"expired":0}`, r.out)
	require.Equal(t, []string{export, export, load + "false " + backup, load + "true " + backup}, *asked)
}

func TestAnExportThatFailsLeavesTheOldBackup(t *testing.T) {
	endpoint := startGateway(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code":"invalid","detail":"line 1: this is not a backup","started":false}`)
			return
		}
		_, _ = io.WriteString(w, strings.Split(backupText, "\n")[0]+"\n"+
			`{"code":"store_unavailable","error":"it went away"}`+"\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	folder := t.TempDir()
	path := filepath.Join(folder, "backup")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	r := fail(t, nil, "sessions", "export", "python", path, "--gateway", endpoint, "-o", "json")
	require.Equal(t, "store_unavailable", failure(t, r).Code)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(content))
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 1)

	r = fail(t, nil, "sessions", "export", "python", "/dev/null", "--gateway", endpoint)
	require.Contains(t, r.err, "not a regular file")
	r = fail(t, nil, "sessions", "export", "python", filepath.Join(folder, "no", "folder"), "--gateway", endpoint)
	require.Contains(t, r.err, "cannot write the backup")
	r = fail(t, nil, "sessions", "import", "python", filepath.Join(folder, "none"), "--gateway", endpoint)
	require.Contains(t, r.err, "cannot read the backup")
	r = fail(t, nil, "sessions", "import", "python", path, "--gateway", endpoint, "-o", "json")
	require.Equal(t, "line 1: this is not a backup", failure(t, r).Message)
	requireCode(t, ExitUsage, ctl(t, nil, "sessions", "export", "python"))
	requireCode(t, ExitUsage, ctl(t, nil, "sessions", "import", "python"))
}
