// Command worker is Tempool's agent: one on each host that is to run workers.
package main

import (
	"os"

	"github.com/tempool/tempool/internal/agentcmd"
	"github.com/tempool/tempool/process"
)

func main() {
	process.RunReaperIfAsked()
	os.Exit(agentcmd.Main(os.Args[1:]))
}
