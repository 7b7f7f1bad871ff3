package devserver

import (
	"strconv"

	"github.com/tempool/tempool/api"
)

// dynamicConfig are the server settings that Tempool's own timing and load need.
var dynamicConfig = []string{
	// Timers fire within 10 ms instead of up to a second late.
	`history.timerProcessorMaxTimeShift="10ms"`,
	// One machine's agents and clients share one namespace; the default limits are meant for tenants of a cluster.
	"frontend.namespaceRPS=20000",
	"frontend.rps=20000",
	"history.rps=20000",
	"matching.rps=20000",
	// With the default of 10 a crowd of updates on one workflow can stall it for a minute: refused ones are tried again and
	// again while speculative workflow tasks are dropped and made anew.
	"history.maxInFlightUpdates=1000",
}

// sqlitePragmas make a durable update on a file two to three times as fast as SQLite's defaults. What was acknowledged
// survives any death of the server process; only a crash of the whole machine can lose the last moments, never the file.
var sqlitePragmas = []string{"journal_mode=WAL", "synchronous=NORMAL"}

// arguments are those of `temporal` for a server as the options describe it, ports chosen.
func arguments(options Options) []string {
	args := []string{
		"server", "start-dev",
		"--ip", "127.0.0.1",
		"--port", strconv.Itoa(options.Port),
		"--log-level", "error",
	}
	if options.UIPort == NoUI {
		args = append(args, "--headless")
	} else {
		args = append(args, "--ui-port", strconv.Itoa(options.UIPort))
	}
	if options.Namespace != DefaultNamespace {
		args = append(args, "--namespace", options.Namespace)
	}
	if options.DBFile != "" {
		args = append(args, "--db-filename", options.DBFile)
		for _, pragma := range sqlitePragmas {
			args = append(args, "--sqlite-pragma", pragma)
		}
	}
	for _, name := range api.SearchAttributes() {
		args = append(args, "--search-attribute", name+"=Keyword")
	}
	for _, setting := range dynamicConfig {
		args = append(args, "--dynamic-config-value", setting)
	}
	return append(args, options.ExtraArgs...)
}
