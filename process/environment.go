package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tempool/tempool/spec"
)

// environment is all that a subprocess gets: what the spec gives, the variables env_from names as far as the agent has them, and ours,
// which win. PATH is the one variable that is taken from the agent unasked, where the spec gives none: without it most
// programs, and every script that calls another program, would not run.
func environment(pool spec.Pool, ours map[string]string, lookup func(string) (string, bool)) []string {
	merged := make(map[string]string, len(pool.Env)+len(pool.EnvFrom)+len(ours)+1)
	for _, name := range append([]string{"PATH"}, pool.EnvFrom...) {
		if value, found := lookup(name); found {
			merged[name] = value
		}
	}
	for name, value := range pool.Env {
		merged[name] = value
	}
	for name, value := range ours {
		merged[name] = value
	}
	environ := make([]string, 0, len(merged))
	for name, value := range merged {
		environ = append(environ, name+"="+value)
	}
	slices.Sort(environ)
	return environ
}

// lookProgram finds the file a command names, as the subprocess would: by the PATH in environ, relative to dir.
func lookProgram(name, dir string, environ []string) (string, error) {
	if name == "" {
		return "", coded(CodeInvalid, nil, "the command is empty: name the program to run")
	}
	if strings.ContainsRune(name, filepath.Separator) {
		if err := executable(inDir(name, dir)); err != nil {
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
		if folder == "" {
			folder = "."
		}
		candidate := filepath.Join(inDir(folder, dir), name)
		if executable(candidate) == nil {
			return candidate, nil
		}
	}
	return "", coded(CodeInvalid, nil, "the program %q is not in PATH (%s): give its full path, or set PATH in pool.env", name, path)
}

func inDir(path, dir string) string {
	if filepath.IsAbs(path) || dir == "" {
		return path
	}
	return filepath.Join(dir, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}
