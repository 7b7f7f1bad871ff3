package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/spec"
)

// A session begins at a host with a free worker, whichever gateway the client asks.
func TestASessionOfMCPBeginsWhereAWorkerIsFree(t *testing.T) {
	t.Parallel()
	servers := []option{withModern(t, spec.MCPSession), legacy(func(sp *spec.Spec) {
		sp.Queue.Timeout = spec.Duration(8 * time.Second) // which the last client waits for in vain
	})}
	for workers, hosts := range [][]string{{"there"}, {"here", "there"}} {
		there := openThere(t, servers...)
		here := openHere(t, there, workers, servers...)
		for _, host := range hosts {
			session := here.initialize()
			require.Regexp(t, `^`+host+`\.`, session[1])
			require.Contains(t, string(here.mcp("POST", mcpTool("pid", "{}"), session...).body), `"pid"`)
		}
		require.Equal(t, 503, here.mcp("POST", mcpInitialize).status)
		require.Equal(t, map[string]int{"p": 1}, there.gateway.MCPSessions())
		require.Equal(t, workers, here.gateway.MCPSessions()["p"])
	}
}

// readTogether is a store whose first reader at one host waits for that at the other.
type readTogether struct {
	sessions.Store
	first *sync.Once
	both  *sync.WaitGroup
}

func (s readTogether) Get(ctx context.Context, id string) (*sessions.Session, error) {
	session, err := s.Store.Get(ctx, id)
	s.first.Do(func() {
		s.both.Done()
		s.both.Wait()
	})
	return session, err
}

// withPeers are the options of hosts that use one store and believe each other.
func withPeers(t *testing.T) func(host string, kept sessions.Store) []option {
	secret := t.TempDir() + "/peer" // else a host does not believe another one who the client is
	writeSecret(t, secret, rand.Text()+rand.Text())
	return func(host string, kept sessions.Store) []option {
		return []option{withModern(t, spec.MCPSession), legacy(func(*spec.Spec) {}), withConfig(func(c *Config) {
			c.HostID, c.Sessions, c.Security.PeerTokenFile = host, fakeSessions{kept}, secret
		})}
	}
}

// recordOf is the record of a session of MCP; zero for none.
func recordOf(t *testing.T, store sessions.Store, session string) (record struct {
	Pool, Host, Lease string
	Initialized       bool
}) {
	t.Helper()
	kept, err := store.Peek(t.Context(), []string{"mcp:" + session})
	require.NoError(t, err)
	if kept[0] != nil {
		require.NoError(t, json.Unmarshal(kept[0].Metadata["mcp"], &record))
	}
	return record
}

// knows adds a worker of another host to what the control plane of e knows.
func (e *env) knows(slot int, other *env) {
	worker := api.WorkerName("p", slot)
	e.control.add(worker, 1)
	e.control.with(worker, func(w *fakeWorker) { w.host, w.endpoint = other.config.HostID, other.gateway.Endpoint() })
}

const mcpInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// Of two hosts that continue a session of a dead one at once, one does, and the other one's clients reach it there. So
// does the first host if it was not dead. A host whose workers are out of service is not.
func TestOneHostContinuesASessionOfMCP(t *testing.T) {
	t.Parallel()
	store := embedded.InMemory(sessions.Config{})
	var both sync.WaitGroup
	both.Add(2)
	on := withPeers(t)
	dead := open(t, 1, on("dead", store)...)
	session := dead.initialize()
	there := openThere(t, on("there", readTogether{store, new(sync.Once), &both})...)
	here := openHere(t, there, 1, on("here", readTogether{store, new(sync.Once), &both})...)
	call := func(e *env) <-chan string {
		return background(func() string { return string(e.mcp("POST", mcpTool("pid", "{}"), session...).body) })
	}
	one, other := call(here), call(there)
	answers := await(t, one) + await(t, other)
	require.Equal(t, 1, strings.Count(answers, "is lost"), answers)
	require.Equal(t, 1, strings.Count(answers, `"pid"`), answers)
	require.Equal(t, 1, here.gateway.MCPSessions()["p"]+there.gateway.MCPSessions()["p"])
	require.Equal(t, await(t, call(here)), await(t, call(there)))

	dead.knows(8, here)
	dead.knows(9, there)
	require.Equal(t, 202, dead.mcp("POST", mcpInitialized, session...).status)
	require.Empty(t, dead.gateway.MCPSessions())
	require.Eventually(t, func() bool { return dead.outcome(0) == api.OutcomeClose }, timeout, poll)
	require.Equal(t, 1, here.gateway.MCPSessions()["p"]+there.gateway.MCPSessions()["p"])

	for _, worker := range []string{"p/0", "p/1"} {
		here.control.with(worker, func(w *fakeWorker) { w.state = lifecycle.Draining })
	}
	require.Eventually(t, func() bool {
		return len(here.gateway.peers.Serving(t.Context(), "p"))+len(there.gateway.peers.Serving(t.Context(), "p")) == 0
	}, timeout, poll)
	require.Equal(t, await(t, call(here)), await(t, call(there)))
	const unknown = 100
	asked := here.control.count("status")
	for n := range unknown {
		here.control.setDown(n > unknown/2)
		require.Equal(t, 404, here.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", "madeup.1").status)
	}
	require.Less(t, here.control.count("status"), asked+unknown/2, "an id that never was costs Temporal nothing")
	require.Equal(t, await(t, call(here)), await(t, call(there)), "the newest roster has its host")
}

// A host that refuses what another one sends keeps its sessions, also while the other one sends it nothing. One that
// cannot be reached does not.
func TestAHostThatRefusesKeepsItsSessionsOfMCP(t *testing.T) {
	t.Parallel()
	store := embedded.InMemory(sessions.Config{})
	there := openThere(t, withPeers(t)("there", store)...)
	session := there.initialize()
	here := openHere(t, there, 1, withPeers(t)("here", store)...) // with another peer token
	call := func() answer { return here.mcp("POST", mcpTool("pid", "{}"), session...) }
	for range 3 {
		refused := call()
		require.Contains(t, string(refused.body), "the MCP session is on host there")
		require.Equal(t, 503, refused.status)
		require.NotEmpty(t, refused.header.Get("Retry-After"))
	}
	require.Equal(t, "there", recordOf(t, store, session[1]).Host)
	require.Empty(t, here.gateway.MCPSessions())

	require.NoError(t, there.gateway.Close(t.Context()))
	require.Eventually(t, func() bool { return strings.Contains(string(call().body), "is lost") }, timeout, poll)
}

// A host that was taken for dead learns with the next renewal of a lease that another one has continued its session,
// which gets what its client says meanwhile.
func TestAHostThatWasNotDeadLearnsWhoHasItsSessionsOfMCP(t *testing.T) {
	t.Parallel()
	store, on := embedded.InMemory(sessions.Config{}), withPeers(t)
	dead := open(t, 2, on("dead", store)...)
	here := openHere(t, nil, 2, on("here", store)...)
	var all []string
	for range 2 {
		session := dead.mcp("POST", mcpInitialize).header.Get("Mcp-Session-Id")
		require.Contains(t, string(here.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", session).body), "is lost")
		all = append(all, session)
	}
	dead.knows(9, here)
	require.Equal(t, 202, dead.mcp("POST", mcpInitialized, "Mcp-Session-Id", all[0]).status)
	require.True(t, recordOf(t, store, all[0]).Initialized)
	require.Equal(t, "here", recordOf(t, store, all[0]).Host)
	require.Equal(t, 1, dead.gateway.MCPSessions()["p"])

	dead.gateway.mcp.Check(time.Now().Add(dead.spec.Lease.TTL.D() / 2))
	require.Eventually(t, func() bool { return len(dead.gateway.MCPSessions()) == 0 }, timeout, poll)
	require.Eventually(t, func() bool {
		return dead.outcome(0) == api.OutcomeClose && dead.outcome(1) == api.OutcomeClose
	}, timeout, poll)
	require.Equal(t, 2, here.gateway.MCPSessions()["p"])
}

// A host without a worker of the pool leaves the session of a dead one to a host with one.
func TestAHostWithoutWorkersContinuesNoSessionOfMCP(t *testing.T) {
	t.Parallel()
	store, on := embedded.InMemory(sessions.Config{}), withPeers(t)
	session := open(t, 1, on("dead", store)...).initialize()
	there := openThere(t, on("there", store)...)
	here := openHere(t, there, 0, on("here", store)...)
	for _, says := range []string{"is lost", `"pid"`} {
		require.Contains(t, string(here.mcp("POST", mcpTool("pid", "{}"), session...).body), says)
	}
	require.Equal(t, "there", recordOf(t, store, session[1]).Host)
	require.Empty(t, here.gateway.MCPSessions())
}

// A session without a process continues at a host with a free one, if its own host has none, be it that another client
// has it or that the workers have moved.
func TestASessionOfMCPContinuesWhereAWorkerIsFree(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{spec.MCPSession, spec.MCPShared} {
		for _, moves := range []bool{true, false} {
			store, on := embedded.InMemory(sessions.Config{}), withPeers(t)
			in := withSpec(func(sp *spec.Spec) { sp.MCP.Mode, sp.Sessions.Store = mode, spec.StoreRedis })
			there := openThere(t, append(on("there", store), in)...)
			here := openHere(t, there, 1, append(on("here", store), in)...)
			session := here.initialize()
			first, _ := here.processes.Get("p/0", 1)
			require.NoError(t, syscall.Kill(first.Info().PID, syscall.SIGKILL))
			<-first.Done()
			switch {
			case moves:
				here.knows(0, there)
			case mode == spec.MCPShared: // no client has it
				continue
			default:
				here.start(0, 2)
				here.lease(0, "another client")
			}
			for _, e := range []*env{here, there, here} {
				require.Eventually(t, func() bool {
					return strings.Contains(string(e.mcp("POST", mcpTool("pid", "{}"), session...).body), `"pid"`)
				}, timeout, poll, mode)
			}
			require.Equal(t, "there", recordOf(t, store, session[1]).Host)
			require.Empty(t, here.gateway.MCPSessions())
		}
	}
}

// loses has a session of MCP here lose its process p/0, whose successor another client has.
func (e *env) loses() api.Lease {
	first, _ := e.processes.Get("p/0", 1)
	require.NoError(e.t, syscall.Kill(first.Info().PID, syscall.SIGKILL))
	<-first.Done()
	e.start(0, 2)
	return e.taken(pool.CheckoutRequest{Holder: "another client", TTLMS: time.Hour.Milliseconds()})
}

func (e *env) returns(l api.Lease) { e.ok("DELETE", "/v1/leases/"+l.ID+"~"+l.Token, nil) }

// A session is not given to a host that takes nothing from here.
func TestASessionOfMCPIsNotGivenToAHostThatRefuses(t *testing.T) {
	t.Parallel()
	store := embedded.InMemory(sessions.Config{})
	in := withSpec(func(sp *spec.Spec) { sp.Sessions.Store = spec.StoreRedis })
	there := openThere(t, append(withPeers(t)("there", store), in)...)
	here := openHere(t, there, 1, append(withPeers(t)("here", store), in)...) // with another peer token
	session := here.initialize()
	taken := here.loses()
	call := background(func() answer { return here.mcp("POST", mcpTool("pid", "{}"), session...) })
	to := api.Peer{Host: "there", Endpoint: there.gateway.Endpoint()}
	require.Eventually(t, func() bool { return !here.gateway.peers.Reaches(to) }, timeout, poll)
	here.returns(taken)
	require.Equal(t, 200, await(t, call).status)
	require.Equal(t, "here", recordOf(t, store, session[1]).Host)
}

// A request that must wait here, since its answer has begun or its client has left, does not keep those behind it from
// a free worker of another host.
func TestARequestOfMCPThatStaysKeepsNobodyBack(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{true, false} {
		store, on := embedded.InMemory(sessions.Config{}), withPeers(t)
		in := withSpec(func(sp *spec.Spec) {
			sp.Sessions.Store, sp.Pool.MaxInflight = spec.StoreRedis, 1
			sp.Queue.Timeout = spec.Duration(timeout)
			if begun {
				sp.MCP.SSEAfter = spec.Duration(time.Millisecond)
			}
		})
		there := openThere(t, append(on("there", store), in)...)
		here := openHere(t, there, 1, append(on("here", store), in)...)
		session := here.initialize()
		here.loses()
		busy := there.taken(pool.CheckoutRequest{Holder: "me", TTLMS: time.Hour.Milliseconds()})
		if begun {
			here.events("POST", mcpTool("pid", "{}"), session[1])
		} else {
			r := requestOf(t.Context(), t, "POST", "http://gateway/mcp/p", strings.NewReader(mcpTool("pid", "{}")),
				append([]string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"},
					session...)...)
			_, err := (&http.Client{Transport: here.http.Transport, Timeout: 100 * time.Millisecond}).Do(r)
			require.Error(t, err)
		}
		began := time.Now()
		next := background(func() answer { return here.mcp("POST", mcpInitialize) })
		there.returns(busy)
		require.Equal(t, 200, await(t, next).status)
		require.Less(t, time.Since(began), timeout/4)
	}
}

// A host whose workers have moved gives a session up for its client, and for nobody else.
func TestNobodyElseMovesASessionOfMCP(t *testing.T) {
	e, one, two := asPrincipals(t, 1, spec.MCPShared, legacy(func(sp *spec.Spec) { sp.Sessions.Store = spec.StoreRedis }))
	session := e.mcpAs(one, "", mcpInitialize).header.Get("Mcp-Session-Id")
	first, _ := e.processes.Get("p/0", 1)
	require.NoError(t, syscall.Kill(first.Info().PID, syscall.SIGKILL))
	<-first.Done()
	e.control.with("p/0", func(w *fakeWorker) { w.host, w.endpoint = "there", "http://127.0.0.1:1" })
	require.Eventually(t, func() bool { return !e.gateway.HasWorkers("p") }, timeout, poll)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	require.Equal(t, 404, e.mcpAs(two, session, ping).status)
	require.Equal(t, 1, e.gateway.MCPSessions()["p"])
	require.Equal(t, 503, e.mcpAs(one, session, ping).status)
	require.Empty(t, e.gateway.MCPSessions())
}

// A request that is lost with its host fails as one that is lost with its process.
func TestARequestOfMCPThatIsLostWithItsHostFails(t *testing.T) {
	t.Parallel()
	here := openHere(t, nil, 0, withModern(t, spec.MCPSession), legacy(func(*spec.Spec) {}))
	here.joins(peerWith(t, 1, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	got := here.mcp("POST", mcpTool("pid", "{}"), "Mcp-Session-Id", "there.1")
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	require.Contains(t, string(got.body), `"code":-32603`)
	require.Contains(t, string(got.body), `"started":true`)
	require.Equal(t, http.StatusBadGateway, here.mcp("GET", "", "Mcp-Session-Id", "there.1").status)
}

// toldStore says when it has changed or deleted a session.
type toldStore struct {
	sessions.Store
	done chan struct{}
}

func (s toldStore) Update(ctx context.Context, id string,
	change func(*sessions.Session) error) (*sessions.Session, error) {
	defer s.tell()
	return s.Store.Update(ctx, id, change)
}

func (s toldStore) Delete(ctx context.Context, id string) error {
	defer s.tell()
	return s.Store.Delete(ctx, id)
}

func (s toldStore) tell() { s.done <- struct{}{} }

// A host that was taken for dead neither deletes the record of a session that another one has continued, nor writes it
// again once the session has ended there.
func TestARecordOfMCPIsThatOfOneHost(t *testing.T) {
	t.Parallel()
	store, on := embedded.InMemory(sessions.Config{}), withPeers(t)
	told := toldStore{store, make(chan struct{}, 100)}
	dead := open(t, 1, on("dead", told)...)
	here := openHere(t, nil, 1, on("here", store)...)
	begin := func() []string {
		session := dead.initialize()
		require.Contains(t, string(here.mcp("POST", mcpTool("pid", "{}"), session...).body), "is lost")
		for len(told.done) > 0 {
			<-told.done
		}
		return session
	}
	session := begin()
	require.Equal(t, 204, dead.mcp("DELETE", "", session...).status)
	await(t, told.done)
	require.Equal(t, "here", recordOf(t, store, session[1]).Host)
	require.Equal(t, 200, here.mcp("POST", mcpTool("pid", "{}"), session...).status)
	require.Equal(t, 204, here.mcp("DELETE", "", session...).status)

	session = begin()
	require.Equal(t, 204, here.mcp("DELETE", "", session...).status)
	require.Eventually(t, func() bool { return recordOf(t, store, session[1]).Pool == "" }, timeout, poll)
	require.Equal(t, 404, dead.mcp("POST", mcpInitialized, session...).status)
	require.Empty(t, dead.gateway.MCPSessions())
	require.Empty(t, recordOf(t, store, session[1]).Pool)
}

// A session that ends while it returns with its lease gives the lease back.
func TestASessionOfMCPThatEndsAsItReturnsHasNoLease(t *testing.T) {
	e := openModern(t, 1, spec.MCPSession, legacy(func(*spec.Spec) {}))
	session := e.initialize()
	e.replaceGateway()
	renewing, ended := make(chan struct{}), make(chan struct{})
	e.control.renew = func(context.Context) {
		close(renewing)
		<-ended
	}
	returned := background(func() int { return e.mcp("POST", mcpTool("pid", "{}"), session...).status })
	await(t, renewing)
	require.Equal(t, 204, e.mcp("DELETE", "", session...).status)
	close(ended)
	require.Equal(t, 404, await(t, returned))
	require.Eventually(t, func() bool { return e.outcome(0) == api.OutcomeClose }, timeout, poll)
}

// heldUpdate is a store whose first change of a session waits.
type heldUpdate struct {
	sessions.Store
	first         *atomic.Bool
	held, release chan struct{}
}

func (s heldUpdate) Update(ctx context.Context, id string,
	change func(*sessions.Session) error) (*sessions.Session, error) {
	if s.first.CompareAndSwap(false, true) {
		close(s.held)
		<-s.release
	}
	return s.Store.Update(ctx, id, change)
}

// Of two requests that continue a session of a dead host at once, the second one does not forget the lease that the
// first one has got.
func TestASessionOfMCPThatIsContinuedTwiceKeepsItsLease(t *testing.T) {
	t.Parallel()
	store, on := embedded.InMemory(sessions.Config{}), withPeers(t)
	session := open(t, 1, on("dead", store)...).initialize()
	held := heldUpdate{store, new(atomic.Bool), make(chan struct{}), make(chan struct{})}
	here := openHere(t, nil, 1, on("here", held)...)
	call := func() string { return string(here.mcp("POST", mcpTool("pid", "{}"), session...).body) }
	second := background(call)
	await(t, held.held)
	require.Contains(t, call(), "is lost")
	lease := func() string { return recordOf(t, store, session[1]).Lease }
	var got string
	require.Eventually(t, func() bool {
		got = lease()
		return got != "" && recordOf(t, store, session[1]).Host == "here"
	}, timeout, poll)
	close(held.release)
	require.Contains(t, await(t, second), `"pid"`)
	require.Equal(t, got, lease())
}
