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
	// idleFiles is the number of descriptors needed besides the connections.
	idleFiles = 500
	// idleTarget limits the memory per idle connection.
	idleTarget = 32.0 // KB
)

// measureIdle opens 10,000 connections to an agent, sends one request on each, and measures calls while they are idle.
func measureIdle(ctx context.Context, b *bench) error {
	if err := raiseFileLimit(idleConnections + idleFiles); err != nil { // the agent inherits the limit
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	connections := strconv.Itoa(idleConnections + 100)
	agent, err := b.agent(ctx, "idle", "--listen", address, "--max-connections", connections, "--max-client-connections", connections)
	if err != nil {
		return err
	}
	pool, err := b.startPool(ctx, b.withLongLeases("idle", callWorkers, 1))
	if err != nil {
		return err
	}
	url := "http://" + address + "/v1/pools/" + pool.Name() + "/call/echo"
	if err := awaitEcho(ctx, url, webBytes); err != nil {
		return err
	}
	before, err := residentMB(agent.Process.Pid)
	if err != nil {
		return err
	}
	r := b.result
	withoutIdle, withIdle := r.row("requests without idle connections", "requests/s"), r.row(fmt.Sprintf("requests with %d idle connections", idleConnections), "requests/s")
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
	if err := load(withoutIdle); err != nil {
		return err
	}
	conns := make([]net.Conn, 0, idleConnections)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for range idleConnections {
		conn, err := openIdleConnection(address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, conn)
	}
	after, err := residentMB(agent.Process.Pid)
	if err != nil {
		return err
	}
	if err := load(withIdle); err != nil {
		return err
	}
	r.atMost("agent RSS per idle connection", (after-before)*1000/idleConnections, idleTarget, "KB")
	return nil
}

// openIdleConnection opens a connection and completes one request on it.
func openIdleConnection(address string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, waitTimeout)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(waitTimeout)) // TCP connections support deadlines
	_, err = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", address)
	if err == nil {
		var response *http.Response
		if response, err = http.ReadResponse(bufio.NewReaderSize(conn, 512), nil); err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("request /healthz: %w", err)
	}
	return conn, nil
}

// raiseFileLimit raises the limit of open files for this process and its children.
func raiseFileLimit(need uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= need {
		return nil
	}
	limit.Cur, limit.Max = need, max(limit.Max, need)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files to %d (see ulimit -Hn): %w", need, err)
	}
	return nil
}
