package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

const (
	// loadEnv makes a process of this test binary send requests to the gateway at this URL.
	loadEnv         = "TEMPOOL_TEST_LOAD"
	loadConnections = 8
	loadBytes       = 1024
)

// runLoad sends as many echoes as each line of stdin says, spread over the connections, and then writes their number.
// It returns at the end of stdin.
func runLoad(endpoint string, orders io.Reader, reports io.Writer) error {
	address := strings.TrimPrefix(endpoint, "http://")
	body := bytes.Repeat([]byte("x"), loadBytes)
	request := fmt.Appendf(nil, "POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: %s\r\nContent-Type: "+
		"application/octet-stream\r\nContent-Length: %d\r\n\r\n%s",
		address, loadBytes, body)
	var connections [loadConnections]*loadConnection
	for i := range connections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		connections[i] = &loadConnection{conn, bufio.NewReader(conn), request, body, make([]byte, loadBytes)}
	}
	for {
		var calls int
		if _, err := fmt.Fscanln(orders, &calls); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var sending sync.WaitGroup
		var failures [loadConnections]error
		for i, c := range connections {
			share := (calls + i) / loadConnections
			sending.Go(func() {
				for n := 0; n < share && failures[i] == nil; n++ {
					failures[i] = c.echo()
				}
			})
		}
		sending.Wait()
		if err := errors.Join(failures[:]...); err != nil {
			return err
		}
		fmt.Fprintln(reports, calls)
	}
}

type loadConnection struct {
	conn          net.Conn
	in            *bufio.Reader
	request, body []byte
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
	if !bytes.Equal(c.answer, c.body) {
		return errors.New("the answer is not the body of the request")
	}
	return nil
}

// loadIfAsked makes this process one that sends requests, if its environment says so.
func loadIfAsked() {
	endpoint := os.Getenv(loadEnv)
	if endpoint == "" {
		return
	}
	if err := runLoad(endpoint, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
