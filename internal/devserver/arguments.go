package devserver

import (
	"strconv"

	"github.com/tempool/tempool/api"
)

// dynamicConfig are the server settings that Tempool's timing and load require.
var dynamicConfig = []string{
	// Timers fire within 10 ms instead of up to a second late.
	`history.timerProcessorMaxTimeShift="10ms"`,
	// All agents and clients of the machine share one namespace; the default limits are for tenants of a cluster.
	"frontend.namespaceRPS=20000",
	"frontend.rps=20000",
	"history.rps=20000",
	"matching.rps=20000",
	// With the default of 10, a burst of updates can stall a workflow for a minute: clients retry rejected updates while
	// the server drops and recreates speculative workflow tasks.
	"history.maxInFlightUpdates=1000",
	// With the default of 1, of two queries that reach a workflow during one of its tasks the second is rejected, and its
	// client repeats it a second later, over and over if others ask, too.
	"history.MaxBufferedQueryCount=1000",
}

// sqlitePragmas make a durable update two to three times as fast as SQLite's defaults. Acknowledged writes survive a
// crash of the server; only a crash of the machine can lose the last ones, and it never corrupts the file.
var sqlitePragmas = []string{"journal_mode=WAL", "synchronous=NORMAL"}

// arguments returns the arguments of the temporal program for options with chosen ports.
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
