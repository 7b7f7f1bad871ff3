package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// Environment variables of every subprocess.
const (
	EnvWorker      = "TEMPOOL_WORKER" // the worker's name, such as python/0
	EnvIncarnation = tree.CookieEnv   // the incarnation's cookie
	EnvFD          = "TEMPOOL_FD"     // protocol frames: the descriptor of the socket to read from
	EnvOut         = "TEMPOOL_OUT"    // protocol frames: the descriptor of the pipe to write to
	EnvPort        = "PORT"           // protocol none: the TCP port of 127.0.0.1 to listen on
	EnvSocket      = "TEMPOOL_SOCKET" // protocol none: the path of a Unix socket to listen on instead
)

// environment merges the environment of a subprocess: the agent's PATH, without which most programs and scripts fail
// (an image has its own), the variables of env_file, those of env_from as far as the agent has them, then pool.env,
// then ours; later values win.
func environment(pool spec.Pool, ours map[string]string, lookup func(string) (string, bool)) ([]string, error) {
	merged := make(map[string]string, len(pool.Env)+len(pool.EnvFrom)+len(ours)+1)
	take := func(names ...string) {
		for _, name := range names {
			if value, found := lookup(name); found {
				merged[name] = value
			}
		}
	}
	if pool.Kind != spec.KindContainer {
		take("PATH")
	}
	if pool.EnvFile != "" {
		text, err := readValue(pool.EnvFile)
		if err != nil {
			return nil, coded(CodeInvalid, err, "read pool.env_file")
		}
		variables, err := spec.ParseEnv(text)
		if err != nil {
			return nil, coded(CodeInvalid, err, "pool.env_file %s", pool.EnvFile)
		}
		maps.Copy(merged, variables)
	}
	take(pool.EnvFrom...)
	maps.Copy(merged, pool.Env)
	maps.Copy(merged, ours)
	environ := make([]string, 0, len(merged))
	for name, value := range merged {
		environ = append(environ, name+"="+value)
	}
	slices.Sort(environ)
	return environ, nil
}

// findProgram finds the file that a command names, as the subprocess would: by the PATH in environ, relative to dir.
func findProgram(name, dir string, environ []string) (string, error) {
	if name == "" {
		return "", coded(CodeInvalid, nil, "the command is empty; name the program to run")
	}
	if strings.ContainsRune(name, filepath.Separator) {
		if err := checkExecutable(resolveIn(name, dir)); err != nil {
			return "", coded(CodeInvalid, err, "the program %q cannot be run", name)
		}
		return name, nil
	}
	path := ""
	for _, entry := range environ {
		if value, found := strings.CutPrefix(entry, "PATH="); found {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		folder = cmp.Or(folder, ".")
		candidate := filepath.Join(resolveIn(folder, dir), name)
		if checkExecutable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", coded(CodeInvalid, nil, "the program %q is not in PATH (%s); use its full path, or set PATH in pool.env",
		name, path)
}

func resolveIn(path, dir string) string {
	if filepath.IsAbs(path) || dir == "" {
		return path
	}
	return filepath.Join(dir, path)
}

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case info.Mode()&0o111 == 0:
		return errors.New(path + " is not executable")
	}
	return nil
}
