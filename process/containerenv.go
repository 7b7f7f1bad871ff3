package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tempool/tempool/spec"
)

// variablesPrefix begins the names of the files in the state directory that hold the environments of containers.
const variablesPrefix = "environment-"

// maxVariable bounds a variable of a container, in bytes; the engine reads files by lines of at most 64 KiB.
const maxVariable = 60_000

// notForEngine are variables of the agent that a client of the engine would take for its own, or pass on: it must not
// report to the agent's service manager about containers, nor take the agent's sockets.
var notForEngine = []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS",
	"LISTEN_FDNAMES", EnvIncarnation}

// engineEnvironment is the environment of every command of the engine: the agent's own, so that all of them use the
// same storage and settings.
func engineEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(notForEngine, name)
	})
}

// containerVariables returns the file from which the engine reads the environment of a container. Its variables are
// neither among the arguments of the engine's client, which are for everybody to read, nor in the client's environment,
// which they would configure.
func containerVariables(pool spec.Pool, environ []string) ([]byte, error) {
	var file strings.Builder
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		_, set := pool.Env[name]
		if name == "PATH" && !set && !slices.Contains(pool.EnvFrom, name) {
			continue // the image has its own
		}
		if strings.ContainsAny(entry, "\r\n") || strings.TrimLeft(name, " \t#") != name || len(entry) > maxVariable {
			return nil, coded(CodeInvalid, nil,
				"the variable %.100q cannot be passed to a container: it has a line break, a name that begins with a space or #, "+
					"or more than %d bytes; mount a file with pool.run_args instead",
				name, maxVariable)
		}
		file.WriteString(entry + "\n")
	}
	return []byte(file.String()), nil
}

// removeVariables removes the files of containers that are no more.
func removeVariables(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), variablesPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}
