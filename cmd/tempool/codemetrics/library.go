package codemetrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Library is Python's standard library on this machine.
type Library struct {
	Version string
	Folder  string
	Files   []string // every .py file, sorted
}

// pythonTimeout bounds the run of the interpreter.
const pythonTimeout = 30 * time.Second

const pythonScript = `import json, platform, sys, sysconfig
print(json.dumps({"version": platform.python_version(), "folder": sysconfig.get_path("stdlib"), "new": sys.version_info >= (3, 9)}))`

// StandardLibrary lists the standard library of python3 on the PATH, without installed packages (site-packages,
// dist-packages). It requires Python 3.9; the error says what to install.
func StandardLibrary(ctx context.Context) (Library, error) {
	path, err := exec.LookPath("python3")
	if err != nil {
		return Library{}, fmt.Errorf("the example needs Python: install Python 3.9 or newer so that python3 is on the PATH "+
			"(%w)", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, path, "-c", pythonScript)
	command.WaitDelay = time.Second
	output, err := command.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return Library{}, fmt.Errorf("%s fails; install Python 3.9 or newer, or put a working one first on the PATH: %w",
			path, err)
	}
	var found struct {
		Version, Folder string
		New             bool
	}
	if err := json.Unmarshal(output, &found); err != nil {
		return Library{}, fmt.Errorf("%s is not a Python interpreter: %w", path, err)
	}
	if !found.New {
		return Library{}, fmt.Errorf("%s is Python %s; install Python 3.9 or newer and put it first on the PATH", path,
			found.Version)
	}
	library := Library{Version: found.Version, Folder: found.Folder}
	if library.Files, err = pythonFiles(found.Folder); err != nil {
		return Library{}, fmt.Errorf("list Python's standard library: %w", err)
	}
	if len(library.Files) == 0 {
		return Library{}, fmt.Errorf("the standard library of Python at %s has no .py file; install the full Python "+
			"package (python3-minimal is not enough)", found.Folder)
	}
	return library, nil
}

// pythonFiles returns the regular .py files below a folder, sorted.
func pythonFiles(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "site-packages" || entry.Name() == "dist-packages" ||
			entry.Name() == "__pycache__"):
			return fs.SkipDir
		case entry.Type().IsRegular() && filepath.Ext(path) == ".py":
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}
