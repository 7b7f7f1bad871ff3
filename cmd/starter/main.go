// Command starter is tempool dev, so that a clone starts with one command: go run ./cmd/starter.
package main

import (
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
)

func main() {
	os.Exit(cli.Main(append([]string{"dev"}, os.Args[1:]...)...))
}
