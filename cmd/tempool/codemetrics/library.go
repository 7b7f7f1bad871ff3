package codemetrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
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

const pythonScript = `
import json, os, platform, sys, sysconfig
if sys.version_info < (3, 9): sys.exit("this is Python " + platform.python_version())
folder, files = sysconfig.get_path("stdlib"), []
for path, folders, names in os.walk(folder):
    folders[:] = [f for f in folders if f not in ("site-packages", "dist-packages", "__pycache__")]
    files += [os.path.join(path, n) for n in names if n.endswith(".py") and not os.path.islink(os.path.join(path, n))]
if not files: sys.exit("its standard library has no .py file (the package python3-minimal is not enough)")
print(json.dumps({"version": platform.python_version(), "folder": folder, "files": sorted(files)}))`

// StandardLibrary lists the standard library of python3 on the PATH, without installed packages (site-packages,
// dist-packages). It requires Python 3.9; the error says what to install.
func StandardLibrary(ctx context.Context) (library *Library, err error) {
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "python3", "-c", pythonScript)
	command.WaitDelay = time.Second
	output, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err == nil {
		err = json.Unmarshal(output, &library)
	}
	if err != nil {
		return nil, fmt.Errorf("the example needs Python; install Python 3.9 or newer, or put one first on the PATH: "+
			"%s: %w", command.Path, err)
	}
	return library, nil
}
