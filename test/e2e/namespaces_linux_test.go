package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access/accesstest"
	"github.com/tempool/tempool/internal/need"
)

// machine is a network namespace that a test made: a machine of its own as far as addresses, ports and loopback are
// concerned.
type machine struct {
	t         *testing.T
	name      string
	ours, its string // the addresses of the link between this process and the machine
}

// run runs a program as root and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	return outputOf(t, exec.CommandContext(t.Context(), args[0], args[1:]...))
}

// newMachine makes a namespace with a link to this process's own.
func newMachine(t *testing.T, number int) *machine {
	t.Helper()
	need.NetworkNamespaces(t)
	id := os.Getpid() % 250
	m := &machine{t: t, name: fmt.Sprintf("tempool-%d-%d", os.Getpid(), number)}
	m.ours, m.its = fmt.Sprintf("10.213.%d.%d", id, 4*number+1), fmt.Sprintf("10.213.%d.%d", id, 4*number+2)
	outside, inside := fmt.Sprintf("tp%da%d", id, number), fmt.Sprintf("tp%db%d", id, number)
	run(t, "ip", "netns", "add", m.name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", m.name).Run() }) // and with it the link
	run(t, "ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", m.name)
	run(t, "ip", "addr", "add", m.ours+"/30", "dev", outside)
	run(t, "ip", "link", "set", outside, "up")
	m.run("ip", "addr", "add", m.its+"/30", "dev", inside)
	m.run("ip", "link", "set", inside, "up")
	m.run("ip", "link", "set", "lo", "up")
	return m
}

// run runs a program on the machine.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	return run(m.t, append([]string{"ip", "netns", "exec", m.name}, args...)...)
}

// cut drops what the machine sends to a port, until heal.
func (m *machine) cut(port string) {
	m.run("nft", "add table inet cut; add chain inet cut out { type filter hook output priority 0; policy accept; }; "+
		"add rule inet cut out tcp dport "+port+" drop")
}

func (m *machine) heal() { m.run("nft", "delete table inet cut") }

func TestAPoolOverTwoMachinesWithTLSBetweenThem(t *testing.T) {
	need.Program(t, "nft")
	need.NetworkNamespaces(t) // before a server starts
	env := newEnv(t)
	_, port, err := net.SplitHostPort(env.server.Address())
	require.NoError(t, err)
	machines := []*machine{newMachine(t, 0), newMachine(t, 1)}
	cert, key, _, trust := accesstest.CertifyBy(t, env.dir, machines[0].its, machines[1].its)
	tokens := filepath.Join(env.dir, "tokens.toml")
	secret := accesstest.AddToken(t, tokens, "job", []string{"span*"}, "call", "lease", "read")
	reader := accesstest.AddToken(t, tokens, "reader", []string{"span*"}, "read")
	endpoints := make([]string, len(machines))
	for i, m := range machines {
		endpoints[i] = "https://" + net.JoinHostPort(m.its, "7460")
		temporal := newLink(t, net.JoinHostPort(m.ours, port), dials(env.server.Address())).addr
		env.startAgentBy([]string{"ip", "netns", "exec", m.name}, fmt.Sprint("machine-", i), "--address", temporal,
			"--listen", net.JoinHostPort(m.its, "7460"), "--tls-cert", cert, "--tls-key", key, "--tokens", tokens,
			"--capacity", "1")
	}
	through := func(token string, endpoints ...string) *tempool.Client {
		c, err := tempool.Dial(t.Context(),
			tempool.Options{Address: env.server.Address(), Gateways: endpoints, GatewayToken: token, GatewayTLS: trust,
				Logger: newDiscardLogger()})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	client := through(secret)
	status := asked(env, env.startPool(echoSpec("span", 2)).Status)
	hosts := map[string]bool{}
	for _, w := range status.Workers {
		hosts[w.Host] = true
		require.Contains(t, endpoints, w.Endpoint)
	}
	require.Len(t, hosts, 2, "one worker on each machine")
	served := map[string]bool{}
	require.Eventually(t, func() bool {
		answers := client.Pool("span").With(tempool.CallOptions{Answered: func(a tempool.Answer) { served[a.Worker] = true }})
		require.NoError(t, answers.Call(t.Context(), "echo", "hello", nil))
		return len(served) == 2
	}, waitTimeout, 20*time.Millisecond, "calls reach both machines")

	for _, endpoint := range endpoints { // each leases both workers, of which one is on the other machine
		c := through(secret, endpoint)
		var leases []*tempool.Lease
		for range 2 {
			lease := env.checkout(c.Pool("span"), tempool.CheckoutOptions{Holder: "job", Wait: waitTimeout})
			require.NoError(t, lease.Call(t.Context(), "echo", "mine", nil))
			leases = append(leases, lease)
		}
		require.NotEqual(t, leases[0].Host, leases[1].Host)
		for _, lease := range leases {
			require.NoError(t, lease.Renew(t.Context()))
			require.NoError(t, lease.Checkin(t.Context(), api.OutcomeOK))
		}
		require.ErrorIs(t, through("", endpoint).Pool("span").Call(t.Context(), "echo", 1, nil), api.ErrUnauthorized)
		require.ErrorIs(t, through("tempool_guess", endpoint).Pool("span").Call(t.Context(), "echo", 1, nil),
			api.ErrUnauthorized)
		require.ErrorIs(t, through(reader, endpoint).Pool("span").Call(t.Context(), "echo", 1, nil), api.ErrForbidden)
		require.ErrorIs(t, through(secret, endpoint).Pool("other").Call(t.Context(), "echo", 1, nil), api.ErrForbidden)
	}

	first := through(secret, endpoints[0])
	require.NoError(t, first.Pool("span").Call(t.Context(), "echo", "before the cut", nil))
	machines[0].cut(port)
	controlPlane := func(is string) func() bool {
		return func() bool { return client.CheckGateway(t.Context(), endpoints[0]).ControlPlane == is }
	}
	require.Eventually(t, controlPlane("lost"), waitTimeout, 200*time.Millisecond)
	require.NoError(t, first.Pool("span").Call(t.Context(), "echo", "during the cut", nil),
		"the gateway serves under the lease that it holds")
	machines[0].heal()
	require.Eventually(t, controlPlane("ok"), waitTimeout, 200*time.Millisecond)
	require.Eventually(t, func() bool { return first.Pool("span").Call(t.Context(), "echo", "after the cut", nil) == nil },
		waitTimeout, 100*time.Millisecond)
	env.waitFor(client.Pool("span"), "both workers are in service again",
		func(v api.PoolWorkers) bool { return v.Ready == 2 })
}
