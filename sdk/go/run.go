package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const howToStart = `This program is a Tempool worker: Tempool starts it, do not run it by hand.
Name it in a pool.toml, for example

    [pool]
    name = "go"
    command = ["./%s"]

and start the pool with: tempool pool start -f pool.toml
`

// Run serves calls until Tempool stops this worker, then exits the process.
func Run() {
	if os.Getenv("TEMPOOL_TEMPLATE") != "" {
		log.Fatal("tempool: a Go program cannot fork, because its runtime has several threads; remove start.fork")
	}
	socket, readable := descriptor("TEMPOOL_FD")
	pipe, writable := descriptor("TEMPOOL_OUT")
	if !readable || !writable {
		fmt.Fprintf(os.Stderr, howToStart, filepath.Base(os.Args[0]))
		os.Exit(2)
	}
	file := os.NewFile(uintptr(socket), "host")
	in, err := net.FileConn(file)
	if err != nil {
		log.Fatalf("tempool: TEMPOOL_FD is not a socket: %v", err)
	}
	_ = file.Close() // FileConn has duplicated it
	os.Exit(program.serve(in, os.NewFile(uintptr(pipe), "answers")))
}

// serve runs the hooks and serves one connection; it returns the exit code of the program.
func (w *Worker) serve(in net.Conn, out io.WriteCloser) (code int) {
	for _, hook := range w.onStart {
		if err := hook(context.Background()); err != nil {
			log.Printf("tempool: the start failed: %v", err)
			return 1
		}
	}
	c := newConnection(w, in, out, Embedding{Worker: Name(), Incarnation: Incarnation()})
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTERM) // before the hello: the host may send it right after
	go func() {
		<-stops
		c.stop()
	}()
	if err := c.serve(); err != nil {
		log.Printf("tempool: %v", err)
		code = 1
	}
	for _, hook := range w.onStop {
		if err := hook(); err != nil {
			log.Printf("tempool: a hook of the stop failed: %v", err)
			code = 1
		}
	}
	return code
}

// descriptor takes the number of an open descriptor from the environment, and keeps it from children.
func descriptor(name string) (int, bool) {
	text := os.Getenv(name)
	_ = os.Unsetenv(name) // fails for malformed names only
	fd, err := strconv.Atoi(text)
	if err != nil {
		return 0, false
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return 0, false
	}
	return fd, true
}

// Embedding says as what a Worker serves within a program that runs several, and how it reports to that program.
type Embedding struct {
	Worker      string // such as go/0
	Incarnation int64  // from 1
	// Log gets what concerns no caller, a line at a time. Default: the standard logger.
	Log func(line string)
	// Panicked is called after each panic of a handler, whose caller has been answered. The state of the worker is unknown
	// then: close the connection. It must not block.
	Panicked func(reason string)
}

func (e Embedding) logf(format string, values ...any) {
	if line := fmt.Sprintf(format, values...); e.Log != nil {
		e.Log(line)
	} else {
		log.Print("tempool: " + line)
	}
}

// panicked reports the error of a handler if it is a panic.
func (e Embedding) panicked(failure error) {
	if crash, ok := errors.AsType[*panicked](failure); ok && e.Panicked != nil {
		e.Panicked(crash.Error())
	}
}

// Serve serves the host at the other end of conn. It returns after the end of conn, or after stopping is closed once
// the calls already received are answered; in any case only when every handler has returned. The end of ctx closes conn
// and cancels the calls. The error is a violation of the protocol by the host.
func (w *Worker) Serve(ctx context.Context, conn net.Conn, stopping <-chan struct{}, as Embedding) error {
	c := newConnection(w, conn, conn, as)
	served := make(chan struct{})
	defer close(served)
	defer context.AfterFunc(ctx, func() {
		_ = conn.Close() // a pipe in memory closes without an error
		c.end(errEnded)
	})()
	go func() {
		select {
		case <-stopping:
			c.stop()
		case <-served:
		}
	}()
	return c.serve()
}
