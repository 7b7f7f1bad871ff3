package devserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Version is the release of the temporal command line that Binary installs: the newest that `go install` can build,
// later ones carry replace directives.
const Version = "v1.5.1"

// The oldest server that has what Tempool's workflows use without being told to: updates with validators.
const (
	oldestMajor = 1
	oldestMinor = 25
)

// Binary returns the path of a working `temporal` program: the one on PATH if it brings Temporal server 1.25 or newer,
// else the one in cacheDir, into which it is installed if missing: by download or, where that fails, by `go install`,
// which takes about three minutes once. Processes that call it at the same time install once and wait for each other.
//
// An empty cacheDir is the folder tempool in the user's cache folder. progress, if not nil, gets a sentence for a person
// every few seconds while it installs. The error of a machine with neither network nor Go says what to do.
func Binary(ctx context.Context, cacheDir string, progress func(sentence string)) (string, error) {
	if progress == nil {
		progress = func(string) {}
	}
	if path, err := exec.LookPath("temporal"); err == nil {
		if err := works(ctx, path); err == nil {
			return path, nil
		} else {
			progress(fmt.Sprintf("%s is on the PATH but of no use (%v).", path, err))
		}
	}
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a folder to keep the Temporal server in; set HOME or XDG_CACHE_HOME: %w", err)
		}
		cacheDir = filepath.Join(user, "tempool")
	}
	into := installer{folder: filepath.Join(cacheDir, "temporal"), progress: progress, tick: 5 * time.Second, download: download, build: build}
	return into.ensure(ctx)
}

var serverVersion = regexp.MustCompile(`Server (\d+)\.(\d+)`)

// works reports whether the program at path is a temporal command line with a server that Tempool can use.
func works(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = environment()
	cmd.WaitDelay = time.Second
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", path, err)
	}
	found := serverVersion.FindStringSubmatch(string(output))
	if found == nil {
		return fmt.Errorf("%s --version names no Temporal server: %q", path, strings.TrimSpace(string(output)))
	}
	major, errMajor := strconv.Atoi(found[1])
	minor, errMinor := strconv.Atoi(found[2])
	if err := errors.Join(errMajor, errMinor); err != nil {
		return fmt.Errorf("%s --version: %w", path, err)
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return fmt.Errorf("its Temporal server %d.%d is older than %d.%d", major, minor, oldestMajor, oldestMinor)
	}
	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
