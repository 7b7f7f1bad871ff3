package sdk

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
)

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
		c.abandon()
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
