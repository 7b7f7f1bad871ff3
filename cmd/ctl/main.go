// Command tempool is tempool under an earlier name, for scripts.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/process"
)

func main() {
	process.RunReaperIfAsked()
	os.Exit(cli.Main(os.Args[1:]...))
}
