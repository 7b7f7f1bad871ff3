// Command tempool operates pools of warm worker processes, and runs the agent of a host; see tempool --help.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]...))
}
