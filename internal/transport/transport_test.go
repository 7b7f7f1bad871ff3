package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tempool/tempool/api"
)

func TestATokenIsSentOnlyOverTLSAndToLoopback(t *testing.T) {
	for text, want := range map[string]bool{"http://127.0.0.1:1": true, "http://[::1]:1": true,
		"https://example.org": true, "http://example.org": false,
		"http://10.0.0.1:7460": false, "http://localhost:1": true, "http://gateway": false} {
		request, err := http.NewRequest(http.MethodGet, text, nil)
		require.NoError(t, err)
		require.Equal(t, want, private(request.URL), text)
	}
}

func TestAccessOfAContextReplacesTheCredentials(t *testing.T) {
	type seen struct {
		authorization string
		certificates  int
	}
	var got []seen
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, seen{r.Header.Get("Authorization"), len(r.TLS.PeerCertificates)})
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.Certificates = server.TLS.Certificates
	own := New("own", config)
	defer own.Close()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	elsewhere := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	elsewhere.Listener = listener
	elsewhere.Start()
	defer elsewhere.Close()

	do := func(ctx context.Context, endpoint string) error {
		got = nil
		reply, err := own.Do(ctx, endpoint, Request{Method: http.MethodGet, Path: "/"})
		if err == nil {
			reply.Close()
		}
		return err
	}
	with := func(a Access) context.Context { return WithAccess(t.Context(), a) }
	here := map[string]string{server.URL: ""}

	require.NoError(t, do(t.Context(), server.URL))
	require.Equal(t, []seen{{"Bearer own", 1}}, got)
	require.NoError(t, do(with(Access{}), server.URL))
	require.Equal(t, []seen{{"", 0}}, got, "nothing of its own credentials")
	require.NoError(t, do(with(Access{Certificate: true}), server.URL))
	require.Equal(t, []seen{{"", 1}}, got)
	require.NoError(t, do(with(Access{Token: "visitor", Own: here}), server.URL))
	require.Equal(t, []seen{{"Bearer visitor", 1}}, got)

	err = do(with(Access{Token: "visitor"}), server.URL)
	require.Equal(t, api.CodeUnavailable, api.CodeOf(err))
	require.ErrorContains(t, err, "reachable only from its own host")
	require.Empty(t, got, "loopback of another host is not that host")
	require.Equal(t, api.CodeUnavailable, api.CodeOf(do(with(Access{}), "unix:"+socket)))
	require.NoError(t, do(with(Access{Own: map[string]string{"http://web-1": "unix:" + socket}}), "http://web-1"))
	require.NoError(t, do(t.Context(), "unix:"+socket))
}

func TestAnEndpointWithoutAnAgentIsExplained(t *testing.T) {
	socket := "unix:" + t.TempDir() + "/gateway.sock"
	_, err := New("", nil).Do(t.Context(), socket, Request{Method: http.MethodGet, Path: "/healthz"})
	require.ErrorContains(t, err, "is an agent running there?")
	require.ErrorContains(t, err, socket)
}

func TestAFailureNamesTheGatewayWithoutItsSecret(t *testing.T) {
	own := New("", nil)
	defer own.Close()
	for endpoint, shown := range map[string]string{
		"http://s3cret@127.0.0.1:1":    "the gateway at http://(hidden)@127.0.0.1:1 failed",
		"http://s3cret@127.0.0.1:x":    `invalid gateway endpoint "http://(hidden)@127.0.0.1:x"`,
		"http://me:s3cret@127.0.0.1:1": "the gateway at http://me:(hidden)@127.0.0.1:1 failed",
	} {
		_, err := own.Do(t.Context(), endpoint, Request{Method: http.MethodGet, Path: "/"})
		require.ErrorContains(t, err, shown)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := own.Do(WithAccess(t.Context(), Access{Token: "t"}), "http://s3cret@127.0.0.1:1",
		Request{Method: http.MethodGet, Path: "/"})
	require.ErrorContains(t, err, "http://(hidden)@127.0.0.1:1 is reachable only from its own host")
}

func TestACallThatWasSentBeforeTheGatewayEndedMayHaveStarted(t *testing.T) {
	for _, header := range []http.Header{{}, {"Idempotency-Key": {"k"}}} { // net/http sends the second one again
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var group errgroup.Group
		group.Go(func() error {
			defer listener.Close()
			conn, err := listener.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			reader := bufio.NewReader(conn)
			if _, err = http.ReadRequest(reader); err == nil {
				_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
			if err == nil {
				_, err = http.ReadRequest(reader)
			}
			return errors.Join(err, listener.Close())
		})
		own := New("", nil)
		endpoint := "http://" + listener.Addr().String()
		request := Request{Method: http.MethodPost, Path: "/", Header: header}
		reply, err := own.Do(t.Context(), endpoint, request)
		require.NoError(t, err)
		require.NoError(t, reply.Close())
		_, err = own.Do(t.Context(), endpoint, request)
		require.NoError(t, group.Wait())
		require.True(t, MayHaveStarted(err), "%v", err)
		_, err = own.Do(t.Context(), endpoint, request)
		require.False(t, MayHaveStarted(err), "%v", err)
		own.Close()
	}
}

// The server closes a connection while the client takes it for a request.
func TestARequestOnAConnectionThatTheServerHasClosedWasNotSent(t *testing.T) {
	keyed := http.Header{"Idempotency-Key": {"k"}} // net/http sends it again
	for i := range 20 {                            // what net/http does on a closed connection is random
		server := httptest.NewServer(http.NotFoundHandler())
		own := New("", nil)
		request := Request{Method: http.MethodPost, Path: "/", Header: []http.Header{{}, keyed}[i%2], AnyStatus: true}
		reply, err := own.Do(t.Context(), server.URL, request)
		require.NoError(t, err)
		require.NoError(t, reply.Close())
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
			server.Close()
			require.Eventually(t, func() bool { return got.Conn.SetDeadline(time.Time{}) != nil }, time.Minute,
				time.Millisecond, "the client notices it")
		}})
		_, err = own.Do(ctx, server.URL, request)
		require.False(t, MayHaveStarted(err), "%v", err)
		own.Close()
	}
}

// net/http answers such a request itself.
func TestARequestWithTooLargeHeadersIsExplained(t *testing.T) {
	gateway := httptest.NewUnstartedServer(http.NotFoundHandler())
	gateway.Config.MaxHeaderBytes = 64 << 10
	gateway.Start()
	defer gateway.Close()
	own := New("", nil)
	defer own.Close()
	path := "/v1/pools/p/call/" + strings.Repeat("m", 100<<10)
	_, err := own.Do(t.Context(), gateway.URL, Request{Method: http.MethodPost, Path: path})
	require.ErrorIs(t, err, api.ErrPayloadTooLarge)
	require.ErrorContains(t, err, "the request's line and headers are too large: a gateway accepts 64 KiB (431 Request "+
		"Header Fields Too Large)")
	require.False(t, MayHaveStarted(err))
}

func TestARouteThatAnOlderAgentLacksIsExplained(t *testing.T) {
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = w.Write(
			[]byte(`{"code": "method_not_allowed", "detail": "/v1/sessions allows GET, not POST", "started": false}`))
	}))
	defer older.Close()
	own := New("", nil)
	defer own.Close()
	_, err := own.Do(t.Context(), older.URL, Request{Method: http.MethodPost, Path: "/v1/sessions"})
	require.ErrorContains(t, err, "allows GET, not POST; an agent of an older build than this client lacks routes: "+
		"upgrade it")
}
