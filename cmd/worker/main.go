// Command worker is tempool agent under an earlier name, for scripts.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
)

func main() {
	os.Exit(cli.Main(append([]string{"agent"}, os.Args[1:]...)...))
}
