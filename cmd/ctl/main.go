// Command ctl operates Tempool; see ctl --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tempool/tempool/cmd/ctl/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
