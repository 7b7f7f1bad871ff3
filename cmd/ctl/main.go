// Command tempool is tempool under an earlier name, for scripts.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:]...))
}
