package devserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/installcache"
)

// script writes an executable that prints what a temporal command line with this server prints for --version.
func script(path, server string) error {
	text := fmt.Sprintf("#!/bin/sh\necho 'temporal version 0 (Server %s, UI 2)'\n", server)
	return os.WriteFile(path, []byte(text), 0o755)
}

func provides(server string) func(context.Context, string, string) error {
	return func(_ context.Context, _, program string) error { return script(program, server) }
}

func fails(_ context.Context, _, _ string) error { return errors.New("no network") }

func newInstaller(t *testing.T) installer {
	return installer{folder: filepath.Join(t.TempDir(), "temporal"), progress: func(string) {},
		download: fails, build: fails}
}

func TestADownloadedServerIsReused(t *testing.T) {
	i := newInstaller(t)
	i.download = provides("1.29.1")
	path, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.NoError(t, checkVersion(t.Context(), path))

	i.download = fails
	again, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.Equal(t, path, again)
}

func TestWithoutNetworkAndGoTheErrorSaysWhatToDo(t *testing.T) {
	_, err := newInstaller(t).ensure(t.Context())
	require.ErrorContains(t, err, "neither downloaded")
	require.ErrorContains(t, err, "install the temporal command line")
	require.ErrorContains(t, err, "TEMPORAL_ADDRESS")
}

func TestAProgramThatDoesNotWorkIsNotInstalled(t *testing.T) {
	i := newInstaller(t)
	i.build = provides("1.19.0")
	_, err := i.ensure(t.Context())
	require.ErrorContains(t, err, "1.19 is older than 1.25")
	require.NoFileExists(t, filepath.Join(i.folder, installed, "temporal"))
}

func TestGoBuildsTheServerIntoTheCacheWithProgress(t *testing.T) {
	bin := t.TempDir()
	fakeGo := "#!/bin/sh\n" +
		"[ \"$1 $2 $3\" = 'build -mod=mod -o' ] || exit 2\n" +
		"printf '%s\\n' \"$@\" >'" + bin + "/arguments'\n" +
		"cp go.mod '" + bin + "'\n" +
		"printf '#!/bin/sh\\necho \"temporal version 1 (Server 1.29.1, UI 2)\"\\n' >\"$4\"\n" +
		"chmod +x \"$4\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))

	i := newInstaller(t)
	i.build = build
	var sentences []string
	i.progress = func(sentence string) { sentences = append(sentences, sentence) }
	path, err := i.ensure(t.Context())
	require.NoError(t, err)
	require.NoError(t, checkVersion(t.Context(), path))
	require.Contains(t, strings.Join(sentences, "\n"), "about three minutes")
	arguments, err := os.ReadFile(filepath.Join(bin, "arguments"))
	require.NoError(t, err)
	require.Contains(t, string(arguments), "github.com/temporalio/cli/cmd/temporal\n")
	required, err := os.ReadFile(filepath.Join(bin, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(required), "github.com/temporalio/cli "+Version)
	require.Contains(t, string(required), "modernc.org/sqlite "+Driver)
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 1, "only the program is kept")
}

func TestAnOutdatedProgramOnThePathIsIgnored(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := installcache.UserPath("temporal", "the test")
	require.NoError(t, err)
	cached := filepath.Join(cache, installed, "temporal")
	require.NoError(t, os.MkdirAll(filepath.Dir(cached), 0o755))
	require.NoError(t, script(cached, "1.29.1"))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	onPath := filepath.Join(bin, "temporal")

	for _, c := range []struct{ server, want string }{
		{"1.30.2", onPath}, {"1.25.0", onPath}, {"2.0.0", onPath}, {"1.24.9", cached}, {"0.31.0", cached},
		{"unknown", cached},
	} {
		t.Run(c.server, func(t *testing.T) {
			require.NoError(t, script(onPath, c.server))
			path, err := Binary(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, c.want, path)
		})
	}
}

func TestTheDownloadedProgramIsNotStarted(t *testing.T) {
	scratch := t.TempDir()
	started := filepath.Join(scratch, "started")
	fetched := "#!/bin/sh\ntouch '" + started + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(scratch, "temporal-cli-"+Version), []byte(fetched), 0o755))
	program := filepath.Join(scratch, "temporal")
	require.NoError(t, download(t.Context(), scratch, program))
	require.FileExists(t, program)
	require.NoFileExists(t, started)
}
