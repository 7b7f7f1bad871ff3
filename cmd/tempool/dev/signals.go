package dev

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// UntilStopped returns a context that ends at SIGTERM, SIGINT or SIGHUP, or when the go run that started this program
// exits. A second signal exits immediately: the workers' processes and the Temporal server are guarded and die with
// this process. It takes over from a context of the caller that ends at the first signal. Call stop.
func UntilStopped(ctx context.Context, out io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	endSignals, endGoRun := watchSignals(cancel, out), watchGoRun(cancel)
	return ctx, func() {
		endGoRun()
		endSignals()
		cancel(nil)
	}
}

// watchSignals calls stop at the first signal and exits at the second; the workers' processes and the Temporal server
// are guarded and die with this process. The returned function ends the watch.
func watchSignals(stop context.CancelCauseFunc, out io.Writer) func() {
	signals := make(chan os.Signal, 2)
	kinds := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		kinds = append(kinds, syscall.SIGHUP)
	}
	signal.Notify(signals, kinds...)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for count := 0; ; count++ {
			select {
			case <-end:
				return
			case <-signals:
				if count > 0 {
					fmt.Fprintln(out, "\nExiting immediately.")
					os.Exit(1)
				}
				fmt.Fprintln(out, "\nStopping gracefully; press Ctrl-C again to exit immediately.")
				stop(errInterrupted)
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(end)
		<-ended
	}
}
