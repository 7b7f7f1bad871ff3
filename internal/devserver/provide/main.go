// Command provide makes sure that this machine has a Temporal server program, so that tests which start one need not
// install it within their deadlines. It prints the program's path.
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
	path, err := devserver.Binary(ctx, "", func(sentence string) { fmt.Fprintln(os.Stderr, sentence) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
