package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	idleConnections = 10_000
	// idleFiles is how many descriptors each side of this needs beside the connections'.
	idleFiles = 500
	// idleTarget is what a connection may cost that does nothing.
	idleTarget = 32.0 // KB
)

// measureIdle opens ten thousand connections to an agent, has each answered once, and calls while they idle.
func measureIdle(ctx context.Context, b *bench) (err error) {
	if err := raiseFiles(idleConnections + idleFiles); err != nil { // the agent inherits it
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	agent, err := b.agent(ctx, "idle", "--listen", address, "--max-connections", strconv.Itoa(idleConnections+100))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.stop()) }()
	pool, err := b.startPool(ctx, b.steady("idle", callWorkers, 1))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopPool(context.WithoutCancel(ctx), pool)) }()
	url := "http://" + address + "/v1/pools/" + pool.Name() + "/call/echo"
	if err := awaitEcho(ctx, url, webBytes); err != nil {
		return err
	}
	before, err := residentMB(agent.cmd.Process.Pid)
	if err != nil {
		return err
	}
	r := b.result
	alone, crowded := r.row("requests with no idle connection", "requests/s"), r.row(fmt.Sprintf("requests beside %d idle connections", idleConnections), "requests/s")
	load := func(into *series) error {
		for range b.rounds {
			rate, err := b.wrk(ctx, url, webConnections, webWarm)
			if err != nil {
				return err
			}
			into.add(rate)
		}
		return nil
	}
	if err := load(alone); err != nil {
		return err
	}
	conns := make([]net.Conn, 0, idleConnections)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for range idleConnections {
		conn, err := greet(address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, conn)
	}
	after, err := residentMB(agent.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := load(crowded); err != nil {
		return err
	}
	r.atMost("agent's memory for each idle connection", (after-before)*1000/idleConnections, idleTarget, "KB")
	return nil
}

// greet opens a connection that has been answered once.
func greet(address string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience)) // a TCP connection has deadlines
	_, err = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", address)
	if err == nil {
		var answer *http.Response
		if answer, err = http.ReadResponse(bufio.NewReaderSize(conn, 512), nil); err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("ask for health: %w", err)
	}
	return conn, nil
}

// raiseFiles has this process, and those it starts, open so many files.
func raiseFiles(need uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= need {
		return nil
	}
	limit.Cur, limit.Max = need, max(limit.Max, need)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("open %d files at one time (raise the hard limit: ulimit -Hn): %w", need, err)
	}
	return nil
}
