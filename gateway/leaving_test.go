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
	cert, key, _ := certify(t, t.TempDir())
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
		unused, err := dialPlain("tcp", address)
		require.NoError(t, err)
		defer unused.conn.Close()
		if scheme == "https://" {
			secure := tls.Client(unused.conn, &tls.Config{InsecureSkipVerify: true})
			require.NoError(t, secure.HandshakeContext(t.Context()))
			unused.in = bufio.NewReader(secure)
		}
		require.Eventually(t, func() bool { return e.gateway.Snapshot().Connections["tcp"] == 2 }, timeout, poll)
		closed := background(func() error { return e.gateway.Close(context.Background()) })
		a, err := unused.answer()
		require.NoError(t, err)
		a.requireProblem(t, http.StatusRequestTimeout, api.CodeUnavailable)
		require.False(t, a.problem.Started)
		require.NoError(t, await(t, closed), "the gateway does not wait for a handshake")
	}
}

const leavingClients = 32

// Each call to a gateway that closes is answered, or certainly not started, even one that is sent on a connection which
// was idle until then. A client that is not the Go SDK has nothing but the answer to know that.
func TestAGatewayThatClosesLeavesNoCallInDoubt(t *testing.T) {
	t.Parallel()
	for range 10 {
		e := open(t, 1, withConfig(func(c *Config) { c.Listen = "127.0.0.1:0" }))
		client := transport.New("", nil)
		call := func() error {
			reply, err := client.Do(t.Context(), "unix:"+e.config.Socket, transport.Request{
				Method: "POST", Path: "/v1/pools/p/call/echo", Body: transport.RawBody([]byte(`"x"`)), Timeout: timeout,
			})
			if err == nil {
				reply.Close()
			}
			return err
		}
		var ready, all sync.WaitGroup
		closing := make(chan struct{})
		ready.Add(2 * leavingClients)
		for range leavingClients {
			all.Go(func() {
				err := call()
				assert.NoError(t, err)
				ready.Done()
				for ; err == nil; err = call() {
					<-time.After(rand.N(3 * leavingTime)) // the connection is idle
				}
				var coded *api.Error
				assert.True(t, errors.As(err, &coded) && !coded.Started, "%v", err)
			})
			all.Go(func() {
				c, err := dialPlain("tcp", strings.TrimPrefix(e.gateway.Endpoint(), "http://"))
				if assert.NoError(t, err) {
					defer c.conn.Close()
					var first answer
					first, err = c.ask(echoRequest)
					assert.Equal(t, 200, first.status)
				}
				ready.Done()
				<-closing
				if err != nil {
					return
				}
				<-time.After(rand.N(2 * time.Millisecond)) // about when the gateway takes its leave
				a, err := c.ask(echoRequest)
				if assert.NoError(t, err, "each request is answered") && a.status != 200 {
					assert.Contains(t, []int{408, 503}, a.status)
					assert.Equal(t, api.CodeUnavailable, a.problem.Code)
					assert.False(t, a.problem.Started)
				}
			})
		}
		ready.Wait()
		close(closing)
		require.NoError(t, e.gateway.Close(context.Background()))
		all.Wait()
		client.Close()
	}
}

// plainClient is a connection without a transport that repeats requests.
type plainClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialPlain(network, address string) (*plainClient, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &plainClient{conn: conn, in: bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(timeout))
}

// dialPlain opens a connection to the gateway's socket, until the test ends.
func (e *env) dialPlain() *plainClient {
	e.t.Helper()
	c, err := dialPlain("unix", e.config.Socket)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { c.conn.Close() })
	return c
}

const (
	echoRequest   = "POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n\"x\""
	healthRequest = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

// ask sends a request and reads the whole answer.
func (c *plainClient) ask(request string) (answer, error) {
	if _, err := io.WriteString(c.conn, request); err != nil {
		return answer{}, err
	}
	return c.answer()
}

func (c *plainClient) mustAsk(t testing.TB, request string) answer {
	t.Helper()
	a, err := c.ask(request)
	require.NoError(t, err)
	return a
}

func (c *plainClient) answer() (a answer, err error) {
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	a.body, err = io.ReadAll(response.Body)
	if err == nil && a.status >= 400 {
		err = json.Unmarshal(a.body, &a.problem)
	}
	return a, err
}
