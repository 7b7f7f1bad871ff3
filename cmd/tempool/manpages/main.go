// Command manpages writes the man pages of tempool into a folder, for packages.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/tempool/tempool/cmd/tempool/cli"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return doc.GenManTree(cli.Command(), &doc.GenManHeader{Section: "1", Source: "Tempool", Manual: "Tempool"}, folder)
}
