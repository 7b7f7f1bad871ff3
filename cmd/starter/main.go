// Command starter runs Tempool on this machine: a Temporal server, an agent, an example pool and its job; see starter
// --help.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/starter/starter"
	"github.com/tempool/tempool/process"
)

func main() {
	process.RunReaperIfAsked()
	os.Exit(starter.Main(os.Args[1:]))
}
