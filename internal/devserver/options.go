package devserver

import (
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	sdklog "go.temporal.io/sdk/log"
)

// DefaultNamespace is the namespace of a server without Options.Namespace.
const DefaultNamespace = "default"

// NoUI as Options.UIPort disables the Web UI.
const NoUI = -1

// Options describe the server that Start provides. The zero value is an in-memory server with its Web UI on free ports.
type Options struct {
	// DBFile is the SQLite file with the server's data; two more files with its name exist next to it while the server
	// runs. Start creates it and its folder if missing. "" keeps data in memory until the process ends.
	DBFile string
	// Port is for gRPC, UIPort for the Web UI, both on 127.0.0.1 only. 0 chooses a free port; UIPort NoUI disables the UI.
	Port, UIPort int
	// Namespace is registered at the start if missing; "" means DefaultNamespace, which always exists.
	Namespace string
	// Log receives the server's output. The end of it is kept for LogTail in any case.
	Log io.Writer
	// Progress receives sentences about long steps, such as the installation of the server. Nil drops them.
	Progress func(sentence string)
	// ExtraArgs follow Tempool's own arguments of `temporal server start-dev`; the last one of a kind wins.
	ExtraArgs []string
}

// environment returns the environment of this process without the settings of Temporal clients, which the server would
// read, too.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "TEMPORAL_") })
}

// silent returns a logger for short-lived clients that report failures as errors.
func silent() sdklog.Logger { return sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)) }
