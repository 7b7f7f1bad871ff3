// Command provide installs the Temporal server program if the machine has none and prints its path. Tests that start a
// server then need no installation within their timeouts.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tempool/tempool/internal/devserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	path, err := devserver.Binary(ctx, func(sentence string) { fmt.Fprintln(os.Stderr, sentence) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
