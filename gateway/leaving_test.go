package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// A client may keep a connection that it opened and did not need, and send its first request when the gateway closes.
// One over TLS may say nothing, or shake hands and send nothing.
func TestAConnectionWithoutARequestIsAnsweredWhenTheGatewayCloses(t *testing.T) {
	t.Parallel()
	cert, key := keys(t, t.TempDir())
	for scheme, security := range map[string]Security{"http://": {}, "https://": {CertFile: cert, KeyFile: key}} {
		e := open(t, 0, withConfig(func(c *Config) {
			c.Listen, c.Security = "127.0.0.1:0", security
			c.Limits.HeaderTime, c.Limits.ReadTime = time.Hour, time.Hour // and so long may a handshake take
		}))
		address, found := strings.CutPrefix(e.gateway.Endpoint(), scheme)
		require.True(t, found, e.gateway.Endpoint())
		silent, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer silent.Close()
		unused, err := dialPlain(address)
		require.NoError(t, err)
		defer unused.conn.Close()
		if scheme == "https://" {
			secure := tls.Client(unused.conn, &tls.Config{InsecureSkipVerify: true})
			require.NoError(t, secure.HandshakeContext(t.Context()))
			unused.in = bufio.NewReader(secure)
		}
		require.Eventually(t, func() bool { return e.gateway.Snapshot().Connections["tcp"] == 2 }, timeout, poll)
		closed := background(func() error { return e.gateway.Close(context.Background()) })
		status, p, err := unused.answer()
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, status)
		require.Equal(t, api.CodeUnavailable, p.Code)
		require.False(t, p.Started)
		require.NoError(t, await(t, closed), "the gateway does not wait for a handshake")
	}
}

const leavingClients = 32

// Each call to a gateway that closes is answered, or certainly not started, even one that is sent on a connection which
// was idle until then.
func TestAGatewayThatClosesLeavesNoCallInDoubt(t *testing.T) {
	t.Parallel()
	for range 10 {
		e := open(t, 1)
		client := transport.New("", nil)
		call := func() error {
			reply, err := client.Do(t.Context(), e.gateway.Endpoint(), transport.Request{
				Method: "POST", Path: "/v1/pools/p/call/echo", Body: transport.RawBody([]byte(`"x"`)), Timeout: timeout,
			})
			if err == nil {
				reply.Close()
			}
			return err
		}
		require.NoError(t, call())
		var all, answered sync.WaitGroup
		answered.Add(leavingClients)
		failed := make(chan error, leavingClients)
		for range leavingClients {
			all.Go(func() {
				for first := true; ; first = false {
					err := call()
					if first {
						answered.Done()
					}
					if err != nil {
						failed <- err
						return
					}
					<-time.After(rand.N(3 * leavingTime)) // the connection is idle
				}
			})
		}
		answered.Wait()
		require.NoError(t, e.gateway.Close(context.Background()))
		all.Wait()
		close(failed)
		for err := range failed {
			var coded *api.Error
			require.True(t, errors.As(err, &coded) && !coded.Started, "%v", err)
		}
		client.Close()
	}
}

// A client that is not the Go SDK has nothing but the answer to know that its call was not started.
func TestARequestOnAnIdleConnectionOfAGatewayThatClosesIsAnswered(t *testing.T) {
	t.Parallel()
	for range 10 {
		e := open(t, 1, withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
		var ready, all sync.WaitGroup
		closing := make(chan struct{})
		ready.Add(leavingClients)
		for range leavingClients {
			all.Go(func() {
				c, err := dialPlain(strings.TrimPrefix(e.gateway.Endpoint(), "http://"))
				if assert.NoError(t, err) {
					defer c.conn.Close()
					var status int
					status, _, err = c.call()
					assert.Equal(t, 200, status)
				}
				ready.Done()
				<-closing
				if err != nil {
					return
				}
				<-time.After(rand.N(2 * time.Millisecond)) // about when the gateway takes its leave
				status, p, err := c.call()
				if assert.NoError(t, err, "each request is answered") && status != 200 {
					assert.Contains(t, []int{408, 503}, status)
					assert.Equal(t, api.CodeUnavailable, p.Code)
					assert.False(t, p.Started)
				}
			})
		}
		ready.Wait()
		close(closing)
		require.NoError(t, e.gateway.Close(context.Background()))
		all.Wait()
	}
}

// plainClient is a connection without a transport that repeats requests.
type plainClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialPlain(address string) (*plainClient, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &plainClient{conn: conn, in: bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(timeout))
}

func (c *plainClient) call() (status int, p Problem, err error) {
	const request = "POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n\"x\""
	if _, err = io.WriteString(c.conn, request); err != nil {
		return 0, p, err
	}
	return c.answer()
}

func (c *plainClient) answer() (status int, p Problem, err error) {
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, p, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = json.Unmarshal(body, &p)
	}
	return response.StatusCode, p, err
}
