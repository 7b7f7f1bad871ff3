package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/gateway/peer"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/spec"
)

// openThere opens a gateway of host "there", whose only worker is p/1.
func openThere(t *testing.T, options ...option) *env {
	t.Helper()
	b := open(t, 0, append(options, withConfig(func(c *Config) { c.HostID, c.Listen = "there", "127.0.0.1:0" }))...)
	b.start(1, 1)
	return b
}

// openHere opens a gateway of host "here" in the same cluster as b, nil for one that has worker p/1 at an endpoint
// only.
func openHere(t *testing.T, b *env, workers int, options ...option) *env {
	t.Helper()
	a := open(t, 0, append([]option{withConfig(func(c *Config) {
		c.Listen = "127.0.0.1:0"
		if b != nil {
			c.Control = b.control
		}
	})}, options...)...)
	if b != nil {
		a.control = b.control
	}
	for slot := range workers {
		a.start(2*slot, 1)
	}
	return a
}

// joins adds worker p/1 of another host to what the control plane of e knows.
func (e *env) joins(endpoint string) {
	e.control.add("p/1", 1)
	e.control.with("p/1", func(w *fakeWorker) { w.host, w.endpoint = "there", endpoint })
}

// peerWith is the endpoint of a host that has so many free slots, and answers other requests by serve.
func peerWith(t *testing.T, free int, serve http.HandlerFunc) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/slots") {
			writeJSON(w, http.StatusOK, peer.Slots{Free: free})
			return
		}
		serve(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func writeSecret(t *testing.T, path, secret string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
}

func TestAWaitingCallGoesToAFreeWorkerOfAnotherHost(t *testing.T) {
	t.Parallel()
	b := openThere(t)
	a := openHere(t, b, 1)
	held := a.heldCall("/v1/pools/p", "held")
	echo := func(body, priority string) {
		t.Helper()
		got := a.ok("POST", "/v1/pools/p/call/echo", body, api.HeaderPriority, priority, api.HeaderTimeout, "30000")
		require.Equal(t, body, string(got.body))
		require.Equal(t, "p/1", got.header.Get(api.HeaderWorker))
		require.Equal(t, "1", got.header.Get(api.HeaderIncarnation))
	}
	for _, body := range []string{"hello", "", strings.Repeat("x", 1<<20)} {
		echo(body, "3")
	}
	a.do("POST", "/v1/pools/p/call/fail", "[]").requireProblem(t, http.StatusInternalServerError, api.CodeWorkerError)
	got := a.do("POST", "/v1/pools/p/call/headers", "[]", "X-Color", "red", api.HeaderSession, "s1",
		"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	require.Contains(t, string(got.body), `"x-color":"red"`)
	require.Contains(t, string(got.body), "0af7651916cd43dd8448eb211c80319c")
	require.Contains(t, string(got.body), "s1")
	require.NotContains(t, string(got.body), "forwarded")

	// both hosts are busy: the call waits here, and takes the worker that is free first, at most once
	heldThere := a.heldCall("/v1/pools/p", "there")
	waiting := a.queued("/v1/pools/p/call/pid", "[]")
	require.Zero(t, b.waiting())
	a.release(a.file("there"))
	require.Equal(t, "p/1", await(t, waiting).header.Get(api.HeaderWorker))
	require.Equal(t, http.StatusOK, await(t, heldThere).status)

	// nobody grants leases: a client that no host can serve holds up no call
	b.control.setDown(true)
	client := a.waits("me", timeout.Milliseconds())
	for range 5 {
		echo("x", "0")
	}
	b.control.setDown(false)
	require.Equal(t, "p/1", await(t, client).lease(t).Worker)

	// a queued call follows its worker to another host
	following := a.queued("/v1/pools/p/workers/0/call/echo", "x")
	require.NoError(t, syscall.Kill(a.processes.List()[0].Info().PID, syscall.SIGKILL))
	require.NotEqual(t, http.StatusOK, await(t, held).status)
	b.start(0, 2)
	got = await(t, following)
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.Equal(t, "2", got.header.Get(api.HeaderIncarnation))
}

// A forwarded call whose worker there takes no more starts again on another one, with the body that it has sent.
func TestAForwardedCallStartsAgain(t *testing.T) {
	t.Parallel()
	stopping := filepath.Join(t.TempDir(), "stop")
	b := openThere(t, withSpecEnv("STOP_UNTIL", stopping))
	stops := b.processes.List()[0].Info().PID
	b.start(3, 1)
	require.Equal(t, http.StatusOK, b.do("POST", "/v1/pools/p/workers/3/call/echo", "x").status) // p/1 is next
	require.NoError(t, syscall.Kill(stops, syscall.SIGTERM))
	b.awaitHeld(stopping + ".began")
	got := openHere(t, b, 0).ok("POST", "/v1/pools/p/call/echo", "hello")
	require.Equal(t, "hello", string(got.body))
	b.release(stopping)
}

func TestAHostWithoutWorkersServesThePool(t *testing.T) {
	t.Parallel()
	b := openThere(t)
	a := openHere(t, b, 0)
	for range 3 {
		a.ok("POST", "/v1/pools/p/call/echo", "hello")
	}
	stream := a.ok("POST", "/v1/pools/p/call/stream", "3")
	require.Equal(t, "application/octet-stream", stream.header.Get("Content-Type"))
	require.Equal(t, "piece 0\npiece 1\npiece 2\n", string(stream.body))

	cancelled, cancel := context.WithCancel(t.Context()) // cancels pass: the worker takes the next call
	held := requestOf(cancelled, t, "POST", a.gateway.Endpoint()+"/v1/pools/p/call/hold",
		strings.NewReader(quoted(a.file("gone"))))
	gone := background(func() error { return errorOf(new(http.Client).Do(held)) })
	a.awaitHeld(a.file("gone.began"))
	cancel()
	require.ErrorIs(t, await(t, gone), context.Canceled)
	a.ok("POST", "/v1/pools/p/call/echo", "hello")

	lease, err := b.control.Checkout(t.Context(), "p/1", tempool.CheckoutOptions{Holder: "me", Token: api.NewLeaseToken()})
	require.NoError(t, err)
	path := "/v1/leases/" + lease.ID + "~" + lease.Token
	got := a.ok("POST", path+"/call/echo", "leased")
	require.Equal(t, "leased", string(got.body))
	require.Equal(t, "piece 0\npiece 1\npiece 2\n", string(a.ok("POST", path+"/call/stream", "3").body))
	a.do("POST", "/v1/leases/"+lease.ID+"~"+strings.Repeat("0", 32)+"/call/echo", "").requireProblem(t,
		http.StatusForbidden, api.CodeForbidden)
	a.ok("PUT", path, map[string]int{"ttl_ms": 60_000})
	a.ok("DELETE", path, nil)
	require.EqualValues(t, 2, a.control.workers["p/1"].usage.Requests, "only the host of the lease counts its calls")
	a.ok("GET", "/v1/workers/p/1/logs", nil)

	require.Equal(t, http.StatusOK, a.lines("GET", "/v1/workers/p/1/logs?follow", "").status)
	ctx, cancel := context.WithTimeout(t.Context(), timeout/4)
	defer cancel()
	require.NoError(t, a.gateway.Close(ctx), "a followed log of another host does not delay a gateway that closes")
}

// TestTheClientOfAForwardedStreamMayBeginLate sends the body of a call of protocol none not at all, and late.
func TestTheClientOfAForwardedStreamMayBeginLate(t *testing.T) {
	t.Parallel()
	b := openThere(t, plain(t))
	a := openHere(t, b, 0, plain(t))
	begin := func(timeout time.Duration) *plainClient {
		c := a.dialPlain()
		require.NoError(t, errorOf(fmt.Fprintf(c.conn, "POST /v1/pools/p/call/echo HTTP/1.1\r\nHost: x\r\n"+
			"Tempool-Timeout: %d\r\nContent-Length: 4\r\n\r\n", timeout.Milliseconds())))
		require.Eventually(t, func() bool { free, _ := b.gateway.FreeSlots("p"); return free == 0 }, timeout, poll)
		return c
	}
	none := begin(claimTimeout / 4)
	require.Equal(t, http.StatusOK, b.do("POST", "/v1/pools/p/call/echo", "x").status, "after the deadline")
	answer, err := none.answer()
	require.NoError(t, err)
	require.Equal(t, http.StatusGatewayTimeout, answer.status)
	late := begin(timeout)
	<-time.After(claimTimeout + claimTimeout/10)
	require.Equal(t, http.StatusOK, late.mustAsk(t, "late").status)
}

func TestAClientGetsALeaseOnAWorkerOfAnotherHost(t *testing.T) {
	t.Parallel()
	for _, here := range []int{0, 1} { // a worker, which is leased
		for _, waitMS := range []int64{0, timeout.Milliseconds()} {
			b := openThere(t)
			a := openHere(t, b, here)
			if here == 1 {
				require.Equal(t, "p/0", a.taken(pool.CheckoutRequest{Holder: "another"}).Worker)
			}
			ask := pool.CheckoutRequest{Holder: "me", WaitMS: waitMS}
			began := time.Now()
			lease := a.do("POST", "/v1/pools/p/leases", ask).lease(t)
			require.Less(t, time.Since(began), timeout/2)
			require.Equal(t, "p/1", lease.Worker)
			require.Equal(t, b.gateway.Endpoint(), lease.Endpoint)
			path := "/v1/leases/" + lease.ID + "~" + lease.Token
			a.ok("POST", path+"/call/echo", "x")
			if waitMS == 0 {
				a.do("POST", "/v1/pools/p/leases", ask).requireProblem(t, http.StatusServiceUnavailable, api.CodeNoWorkers)
				continue
			}
			next := a.waits("next", timeout.Milliseconds())
			a.ok("DELETE", path, nil)
			require.Equal(t, "p/1", await(t, next).lease(t).Worker)
		}
	}
}

func TestWhoWaitsWithoutAnyWorkerIsServedByTheHostThatStartsOne(t *testing.T) {
	b := parallel(t, 0, withConfig(func(c *Config) { c.HostID, c.Listen = "there", "127.0.0.1:0" }))
	a := openHere(t, b, 0, following())
	b.control.spec.Scale.Max = 4
	call := a.queued("/v1/pools/p/call/echo", "x")
	client := a.waits("me", timeout.Milliseconds())
	b.start(1, 1)
	require.Equal(t, "p/1", await(t, call).header.Get(api.HeaderWorker))
	require.Equal(t, "p/1", await(t, client).lease(t).Worker)
}

func TestAClientWaitsForAHostThatCannotBeReachedFromHere(t *testing.T) {
	t.Parallel()
	a := openHere(t, nil, 0)
	a.joins("http://127.0.0.1:1")
	for _, c := range []struct {
		ms     int64
		status int
		code   api.Code
	}{{timeout.Milliseconds(), http.StatusCreated, ""}, {3000, http.StatusServiceUnavailable, api.CodeQueueTimeout},
		{0, http.StatusServiceUnavailable, api.CodeNoWorkers}} {
		got := a.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", WaitMS: c.ms})
		require.Equal(t, c.status, got.status, "%s", got.body)
		require.Equal(t, c.code, got.problem.Code)
	}
}

func TestAClientWithoutAWaitOvertakesNoneThatWaits(t *testing.T) {
	t.Parallel()
	endpoint := peerWith(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusCreated, api.Lease{ID: "p-1-1-1", Worker: "p/1"})
	})
	a := openHere(t, nil, 1)
	a.joins(endpoint)
	lease := a.taken(pool.CheckoutRequest{Holder: "another"})
	client := a.waits("me", timeout.Milliseconds())
	a.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "pushy"}).requireProblem(t,
		http.StatusServiceUnavailable, api.CodeNoWorkers)
	a.ok("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
	require.Equal(t, "p/0", await(t, client).lease(t).Worker)
}

func TestOnlyPeersMayForward(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens, secret := tokensFile(t, []string{"p"}, "call")
	shared, wrong := dir+"/peer", dir+"/wrong"
	writeSecret(t, shared, strings.Repeat("a", 32))
	writeSecret(t, wrong, strings.Repeat("b", 32))
	security := func(peerToken string) option {
		return withConfig(func(c *Config) { c.Security = Security{TokensFile: tokens, PeerTokenFile: peerToken} })
	}
	b := openThere(t, security(shared))

	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"from":"here","to":"there","name":"root","rights":31}`))
	for _, headers := range [][]string{
		{api.HeaderForwarded, forged},
		{api.HeaderForwarded, forged, api.HeaderPeerToken, strings.Repeat("b", 32)},
		{api.HeaderForwarded, "nonsense", api.HeaderPeerToken, strings.Repeat("a", 32)},
		{api.HeaderPeerToken, strings.Repeat("a", 32)},
	} {
		b.tcp("POST", "/v1/pools/p/call/echo", secret, "x", headers...).requireProblem(t, http.StatusForbidden,
			api.CodeForbidden)
	}

	a := openHere(t, b, 0, security(shared))
	require.Equal(t, http.StatusOK, a.tcp("POST", "/v1/pools/p/call/echo", secret, "x").status)
	lease, err := b.control.Checkout(t.Context(), "p/1", tempool.CheckoutOptions{Holder: "me", Token: api.NewLeaseToken()})
	require.NoError(t, err)
	leased := a.tcp("POST", "/v1/leases/"+lease.ID+"~"+lease.Token+"/call/echo", secret, "x")
	require.Equal(t, http.StatusForbidden, leased.status, "the token may not use leases")

	stranger := openHere(t, b, 0, security(wrong))
	refused := stranger.tcp("POST", "/v1/pools/p/call/echo", secret, "x")
	refused.requireProblem(t, http.StatusServiceUnavailable, api.CodeNoWorkers)
	require.False(t, refused.problem.Started)
}

func TestAForwardedCallIsNotForwardedAgain(t *testing.T) {
	b := parallel(t, 0, withConfig(func(c *Config) { c.HostID, c.Listen = "there", "127.0.0.1:0" }))
	c := openThere(t)
	b.joins(c.gateway.Endpoint())
	b.control.with("p/1", func(w *fakeWorker) { w.host = "third" })
	text, err := json.Marshal(peer.Caller{From: "here", To: "there", Name: "me", Rights: access.Client, PatienceMS: 50})
	require.NoError(t, err)
	for _, path := range []string{"/v1/pools/p/call/echo", "/v1/pools/p/workers/1/call/echo"} {
		refused := b.tcp("POST", path, "", "x", api.HeaderForwarded, base64.RawURLEncoding.EncodeToString(text))
		refused.requireProblem(t, http.StatusServiceUnavailable, api.CodeNoWorkers)
		require.False(t, refused.problem.Started)
	}
	require.Zero(t, c.gateway.Snapshot().Connections["tcp"])
}

// TestASilentPeerCostsOneTimeout has calls wait here while the only other host is frozen or dead.
func TestASilentPeerCostsOneTimeout(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"dead": false, "frozen": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			if !answers {
				listener.Close()
			}
			t.Cleanup(func() { listener.Close() })
			a := openHere(t, nil, 1)
			a.joins("http://" + listener.Addr().String())
			held := a.heldCall("/v1/pools/p", "held")
			waiting := a.queued("/v1/pools/p/call/echo", "w")
			to := pool.Place{Peer: api.Peer{Host: "there", Endpoint: "http://" + listener.Addr().String()}}
			began := time.Now()
			require.True(t, a.gateway.Send("p", pool.CallsAndClients, to)) // as if it had said that it has a free worker
			require.Eventually(t, func() bool { return a.waiting() == 1 }, timeout, poll)
			require.Less(t, time.Since(began), 15*time.Second)
			a.release(a.file("held"))
			require.Equal(t, http.StatusOK, await(t, held).status)
			require.Equal(t, http.StatusOK, await(t, waiting).status)

			a = openHere(t, nil, 1) // which does not know yet that the peer is silent
			a.joins(to.Endpoint)
			lease := a.taken(pool.CheckoutRequest{Holder: "another"})
			client := background(func() answer {
				return a.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds()})
			})
			require.Equal(t, "p/1", await(t, client).lease(t).Worker, "which Temporal grants, and the client may reach")
			a.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "pushy"}).requireProblem(t,
				http.StatusServiceUnavailable, api.CodeNoWorkers)
			next := a.waits("next", timeout.Milliseconds())
			a.ok("DELETE", "/v1/leases/"+lease.ID+"~"+lease.Token, nil)
			require.Equal(t, "p/0", await(t, next).lease(t).Worker)
			if !answers {
				return
			}

			for _, request := range []string{"POST /v1/pools/p/workers/1/call/echo", "POST /v1/leases/p.1.1.1/call/echo",
				"POST /v1/leases/p.1.1.1/notify/echo", "POST /mcp/p", "GET /mcp/p", "GET /v1/workers/p/1/logs"} {
				t.Run(request, func(t *testing.T) { // which no other host can serve
					t.Parallel()
					a := openHere(t, nil, 0, withModern(t, spec.MCPSession), withSpec(func(sp *spec.Spec) {
						sp.Call.Timeout, sp.Queue.Timeout = spec.Duration(time.Second), spec.Duration(time.Second)
					}))
					a.joins(to.Endpoint)
					require.NoError(t, errorOf(a.control.Checkout(t.Context(), "p/1", tempool.CheckoutOptions{Holder: "me"})))
					method, path, _ := strings.Cut(request, " ")
					for began := time.Now(); a.gateway.peers.Reaches(to.Peer); {
						require.Less(t, time.Since(began), timeout)
						got := a.do(method, path, mcpTool("pid", "{}"), "Content-Type", "application/json", "Mcp-Session-Id",
							"there.1", "Tempool-Timeout", "500", "Accept", "application/json, text/event-stream")
						require.Contains(t, string(got.body), `"code":"deadline_exceeded"`)
						require.Contains(t, string(got.body), `"started":true`)
						require.Equal(t, request == "POST /mcp/p", got.status == http.StatusOK, "an error of JSON-RPC")
					}
				})
			}
		})
	}
}

// TestAnAnswerOfAPeerIsNotCut has an answer of an MCP server outlast the time of its first word, and a log come from
// another host while this gateway leaves.
func TestAnAnswerOfAPeerIsNotCut(t *testing.T) {
	t.Parallel()
	more, long := make(chan struct{}), strings.Repeat("y", 64<<20) // more than the buffers on the way
	endpoint := peerWith(t, 0, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		if r.Method == http.MethodPost {
			select {
			case <-time.After(1500 * time.Millisecond): // more than call.timeout and queue.timeout
			case <-r.Context().Done():
			}
			return
		}
		<-more
		_, _ = io.WriteString(w, long)
	})
	a := openHere(t, nil, 0, withModern(t, spec.MCPSession), withSpec(func(sp *spec.Spec) {
		sp.Call.Timeout, sp.Queue.Timeout = spec.Duration(10*time.Millisecond), spec.Duration(10*time.Millisecond)
	}))
	a.joins(endpoint)
	require.Equal(t, "x", string(a.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", "there.1").body))
	got, err := a.http.Get("http://gateway/v1/workers/p/1/logs")
	require.NoError(t, err)
	defer got.Body.Close()
	left := background(func() error { return a.gateway.Leave(t.Context()) })
	<-a.gateway.life.Done()
	close(more)
	n, err := io.Copy(io.Discard, got.Body)
	require.NoError(t, err)
	require.EqualValues(t, 1+len(long), n)
	require.NoError(t, await(t, left))
}

func TestARequestToAPeerThatIsLostHasStarted(t *testing.T) {
	t.Parallel()
	broken := make(chan struct{})
	asked := make(chan pool.CheckoutRequest, 2)
	endpoint := peerWith(t, 1, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/leases") {
			var request pool.CheckoutRequest
			_ = json.NewDecoder(r.Body).Decode(&request)
			if asked <- request; len(asked) == 1 {
				panic(http.ErrAbortHandler)
			}
			writeJSON(w, http.StatusCreated, api.Lease{ID: "p-1-1-1", Worker: "p/1", Token: request.Token})
			return
		}
		_, _ = io.ReadAll(r.Body)
		close(broken)
		panic(http.ErrAbortHandler)
	})
	a := openHere(t, nil, 0)
	a.joins(endpoint)
	got := a.do("POST", "/v1/pools/p/call/echo", "x")
	got.requireProblem(t, http.StatusBadGateway, api.CodeWorkerCrashed)
	require.True(t, got.problem.Started)
	await(t, broken)
	a.do("POST", "/v1/pools/p/leases", pool.CheckoutRequest{Holder: "me", WaitMS: timeout.Milliseconds()}).lease(t)
	first, second := await(t, asked), await(t, asked)
	require.NotEmpty(t, first.RequestID)
	require.Equal(t, first, second, "asked again, the host that has granted the lease answers with the same one")
}

func TestAHostsCertificateProvesAPeerAndAClientsDoesNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, trust := certify(t, dir, "127.0.0.1") // an authority that is also the certificate of the hosts
	host, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, host.Leaf, own.Public(), host.PrivateKey)
	require.NoError(t, err)
	secure := withConfig(func(c *Config) {
		c.Security = Security{CertFile: cert, KeyFile: key, ClientCAFile: cert}
		c.Hosts = func(context.Context) ([]string, error) { return []string{"https://127.0.0.1:7460"}, nil }
	})
	b := openThere(t, secure)
	a := openHere(t, b, 0, secure)
	a.ok("POST", "/v1/pools/p/call/echo", "hello")

	client := clientWith(t, &tls.Config{RootCAs: trust.RootCAs,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}}})
	require.Equal(t, http.StatusOK, overTCP(t, client, b.gateway.Endpoint(), "/v1/pools/p"))
	_, err = clientWith(t, trust).Get(b.gateway.Endpoint() + "/v1/pools/p")
	require.Error(t, err, "no connection without a certificate")
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"from":"here","to":"there","name":"root","rights":31}`))
	require.Equal(t, http.StatusForbidden,
		overTCP(t, client, b.gateway.Endpoint(), "/v1/pools/p", api.HeaderForwarded, forged))
	peers := clientWith(t, &tls.Config{RootCAs: trust.RootCAs, Certificates: []tls.Certificate{host}})
	require.Equal(t, http.StatusOK, overTCP(t, peers, b.gateway.Endpoint(), "/v1/pools/p", api.HeaderForwarded, forged))
	require.Equal(t, http.StatusForbidden, overTCP(t, peers, b.gateway.Endpoint(), "/v1/admin/sessions/copy"),
		"a peer's own certificate has no more rights than a client's")

	asked, answer := make(chan struct{}), make(chan struct{})
	hosts := &hostNames{names: map[string]bool{"127.0.0.1": true}, list: func(context.Context) ([]string, error) {
		close(asked)
		<-answer
		return nil, nil
	}}
	read := background(func() bool { hosts.read(t.Context()); return true })
	await(t, asked)
	require.True(t, await(t, background(func() bool { return hosts.named(host.Leaf) })), "while the list is being read")
	close(answer)
	await(t, read)
}

// TestARefusedCallKeepsItsBody has a peer refuse a call, which this host then serves.
func TestARefusedCallKeepsItsBody(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	endpoint := peerWith(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		peer.RefuseCall(w.Header())
		writeProblem(w, api.Errorf(api.CodeBusy, "not now"))
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	a := openHere(t, nil, 1)
	a.joins(endpoint)
	held := a.heldCall("/v1/pools/p", "held")
	body := strings.Repeat("x", 100_000)
	waiting := background(func() answer { return a.do("POST", "/v1/pools/p/call/echo", body) })
	for range 3 {
		await(t, asked)
	}
	a.release(a.file("held"))
	got := await(t, waiting)
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.Equal(t, body, string(got.body))
	require.Equal(t, http.StatusOK, await(t, held).status)
}
