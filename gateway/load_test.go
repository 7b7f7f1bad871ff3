package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

const (
	// loadEnv makes a process of this test binary send requests as its JSON says, a load.
	loadEnv   = "TEMPOOL_TEST_LOAD"
	loadBytes = 1024
)

// load are requests to a gateway, each with the same answer.
type load struct {
	Endpoint, Path, Type, Body, Answer string
	Connections                        int
}

// runLoad sends as many requests as each line of stdin says, spread over the connections, and then writes their number.
// It returns at the end of stdin.
func runLoad(l load, orders io.Reader, reports io.Writer) error {
	address := strings.TrimPrefix(l.Endpoint, "http://")
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", l.Path,
		address, l.Type, len(l.Body), l.Body)
	connections := make([]*loadConnection, l.Connections)
	for i := range connections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		connections[i] = &loadConnection{conn, bufio.NewReader(conn), request, []byte(l.Answer), make([]byte, len(l.Answer))}
	}
	for {
		var calls int
		if _, err := fmt.Fscanln(orders, &calls); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var sending sync.WaitGroup
		failures := make([]error, len(connections))
		for i, c := range connections {
			share := (calls + i) / len(connections)
			sending.Go(func() {
				for n := 0; n < share && failures[i] == nil; n++ {
					failures[i] = c.echo()
				}
			})
		}
		sending.Wait()
		if err := errors.Join(failures...); err != nil {
			return err
		}
		fmt.Fprintln(reports, calls)
	}
}

type loadConnection struct {
	conn          net.Conn
	in            *bufio.Reader
	request, want []byte
	answer        []byte
}

// echo sends one request and reads its answer.
func (c *loadConnection) echo() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("the gateway answered %q", status)
	}
	for line := status; len(line) > len("\r\n"); {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(c.in, c.answer); err != nil {
		return err
	}
	if !bytes.Equal(c.answer, c.want) {
		return fmt.Errorf("the answer is %q", c.answer)
	}
	return nil
}

// loadIfAsked makes this process one that sends requests, if its environment says so.
func loadIfAsked() {
	text := os.Getenv(loadEnv)
	if text == "" {
		return
	}
	var l load
	err := json.Unmarshal([]byte(text), &l)
	if err == nil {
		err = runLoad(l, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
