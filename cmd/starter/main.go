// Command starter shows Tempool at work on this machine, with one command for everything; see starter --help.
package main

import (
	"os"

	"github.com/tempool/tempool/internal/starter"
	"github.com/tempool/tempool/process"
)

func main() {
	process.RunReaperIfAsked()
	os.Exit(starter.Main(os.Args[1:]))
}
