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

// Library is Python's standard library as it is installed here.
type Library struct {
	Python  string // path of the interpreter
	Version string
	Folder  string
	Files   []string // every .py file, in order
}

// pythonPatience bounds the question to the interpreter.
const pythonPatience = 30 * time.Second

const askPython = `import json, platform, sys, sysconfig
print(json.dumps({"python": sys.executable, "version": platform.python_version(), "folder": sysconfig.get_path("stdlib"), "new": sys.version_info >= (3, 9)}))`

// StandardLibrary asks python3 on the PATH where its standard library is, and lists it. What others have installed
// (site-packages, dist-packages) is left out. The error of a machine without a Python that can be used says what to do.
func StandardLibrary(ctx context.Context) (Library, error) {
	path, err := exec.LookPath("python3")
	if err != nil {
		return Library{}, fmt.Errorf("the example needs Python: install Python 3.9 or newer so that python3 is on the PATH (%w)", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pythonPatience)
	defer cancel()
	command := exec.CommandContext(ctx, path, "-c", askPython)
	command.WaitDelay = time.Second
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return Library{}, fmt.Errorf("%s does not run; install Python 3.9 or newer, or put a working one first on the PATH: %w", path, err)
	}
	var told struct {
		Python, Version, Folder string
		New                     bool
	}
	if err := json.Unmarshal(output, &told); err != nil {
		return Library{}, fmt.Errorf("%s answers as no Python does: %w", path, err)
	}
	if !told.New {
		return Library{}, fmt.Errorf("%s is Python %s; install Python 3.9 or newer and put it first on the PATH", path, told.Version)
	}
	library := Library{Python: told.Python, Version: told.Version, Folder: told.Folder}
	if library.Files, err = pythonFiles(told.Folder); err != nil {
		return Library{}, fmt.Errorf("list Python's standard library: %w", err)
	}
	if len(library.Files) == 0 {
		return Library{}, fmt.Errorf("the standard library of Python at %s has no .py file; install the whole of Python (python3-minimal is not enough)", told.Folder)
	}
	return library, nil
}

// pythonFiles lists the regular .py files below a folder.
func pythonFiles(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "site-packages" || entry.Name() == "dist-packages" || entry.Name() == "__pycache__"):
			return fs.SkipDir
		case entry.Type().IsRegular() && filepath.Ext(path) == ".py":
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}
