package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/process"

	"github.com/tempool/tempool/internal/sleep"
)

// errGoRunExited ends a run when its go run was killed: go run does not forward SIGTERM and would leave this program
// running.
var errGoRunExited = errors.New("the go run that started this program exited")

const goRunInterval = time.Second

// UntilStopped returns a context that ends at SIGTERM, SIGINT or SIGHUP, or when the go run that started this program
// exits. A second signal exits immediately: the workers' processes and the Temporal server are guarded and die with
// this process. It takes over from a context of the caller that ends at the first signal. Call stop.
func UntilStopped(ctx context.Context, out io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	kinds := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		kinds = append(kinds, syscall.SIGHUP)
	}
	count := 0
	end := OnSignal(func() {
		if count++; count > 1 {
			fmt.Fprintln(out, "\nExiting immediately.")
			os.Exit(1)
		}
		fmt.Fprintln(out, "\nStopping gracefully; press Ctrl-C again to exit immediately.")
		cancel(errInterrupted)
	}, kinds...)
	parent := os.Getppid()
	ranByGo := isGo(parent)
	watched := sleep.Done(func() {
		for range sleep.Ticks(ctx.Done(), goRunInterval) {
			if ranByGo && os.Getppid() != parent {
				cancel(errGoRunExited)
			}
		}
	})
	return ctx, func() {
		end()
		cancel(nil)
		<-watched
	}
}

// OnSignal calls f at each of these signals until end is called.
func OnSignal(f func(), kinds ...os.Signal) (end func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, kinds...)
	ended := sleep.Done(func() {
		for range signals {
			f()
		}
	})
	return func() {
		signal.Stop(signals)
		close(signals) // Stop has returned, so nothing is sent any more
		<-ended
	}
}

// isGo reports whether a process is the go command; false if its name cannot be read.
func isGo(pid int) bool {
	parent, err := process.NewProcess(int32(pid))
	if err != nil {
		return false
	}
	name, err := parent.Name()
	return err == nil && name == "go"
}
