// Command worker is tempool agent under an earlier name, for scripts.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
	"github.com/tempool/tempool/process"
)

func main() {
	process.RunReaperIfAsked()
	os.Exit(cli.Main(append([]string{"agent"}, os.Args[1:]...)...))
}
