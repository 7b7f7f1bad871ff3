// Command worker is Tempool's agent; one runs on each host with workers. See worker --help.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/worker/agentcmd"
	"github.com/tempool/tempool/process"
)

func main() {
	process.RunReaperIfAsked()
	os.Exit(agentcmd.Main(os.Args[1:]))
}
