package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

// linkedNetworks makes two network namespaces with a link between them, and returns the name of the first and the
// address of the second.
func linkedNetworks(t *testing.T) (name, address string) {
	t.Helper()
	need.NetworkNamespaces(t)
	ip := func(args ...string) {
		t.Helper()
		out, err := exec.Command("ip", args...).CombinedOutput()
		require.NoError(t, err, "ip %v: %s", args, out)
	}
	ends := []string{fmt.Sprintf("tempool-a-%d", os.Getpid()), fmt.Sprintf("tempool-b-%d", os.Getpid())}
	for _, end := range ends {
		ip("netns", "add", end)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", end).Run() })
	}
	ip("-n", ends[0], "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", ends[1])
	for i, device := range []string{"near", "far"} {
		ip("-n", ends[i], "addr", "add", fmt.Sprintf("10.0.0.%d/30", i+1), "dev", device)
		ip("-n", ends[i], "link", "set", device, "up")
	}
	return ends[0], "10.0.0.2"
}

// sends makes a worker send datagrams until its samples show them, and the answers that nobody listens.
func sends(t *testing.T, p *Process, address string) {
	t.Helper()
	sample, err := p.FreshSample(t.Context())
	require.NoError(t, err)
	require.NotNil(t, sample.Network, "the kernel counts for a network of its own")
	payload, err := json.Marshal(address + ":9")
	require.NoError(t, err)
	sent := int64(0)
	eventually(t, func() bool {
		answer, err := p.Conn().Call(t.Context(), wire.Request{Method: "send", Payload: payload})
		if err == nil && string(answer.Payload) == "1000" {
			sent += 1000
		}
		sample, err := p.FreshSample(t.Context())
		return err == nil && sent >= 20_000 && sample.Network.SentBytes >= 10_000 && sample.Network.ReceivedBytes > 0
	}, "the datagrams must show")
	sample, err = p.FreshSample(t.Context())
	require.NoError(t, err)
	require.Less(t, sample.Network.SentBytes, 2*sent+100_000, "and nothing else")
}

func TestTheNetworkOfAProcessInANamespaceOfItsOwnIsMeasured(t *testing.T) {
	namespace, address := linkedNetworks(t)
	sp := kindsUnderTest[spec.KindProcess].spec(t)
	sp.Pool.Command = append([]string{"ip", "netns", "exec", namespace}, sp.Pool.Command...)
	sends(t, begin(t, open(t), sp), address)

	sp = kindsUnderTest[spec.KindProcess].spec(t)
	sp.Sandbox.Network = spec.NetworkNone
	sample, err := begin(t, open(t), sp).FreshSample(t.Context())
	require.NoError(t, err)
	require.Nil(t, sample.Network, "loopback is no network")
}

func TestTheNetworkOfAContainerIsMeasured(t *testing.T) {
	namespace, address := linkedNetworks(t)
	s := kindsUnderTest[spec.KindContainer].open(t)
	sp := containerSpec()
	sp.Pool.RunArgs = []string{"--pull=never", "--network=ns:/run/netns/" + namespace}
	sends(t, begin(t, s, sp), address)
}

// A program whose root is in the agent's network is measured only as far as the kernel can: not at all.
func TestANamespaceThatOnlyAChildHasIsNotTheNetworkOfItsTree(t *testing.T) {
	namespace, _ := linkedNetworks(t)
	p := begin(t, open(t), sh("ip netns exec "+namespace+" sleep 1000; exit 1"))
	eventually(t, func() bool {
		sample, err := p.FreshSample(t.Context())
		return err == nil && sample.Children == 1 && childIn(p)
	}, "the child must show")
	sample, err := p.FreshSample(t.Context())
	require.NoError(t, err)
	require.Nil(t, sample.Network)
}

// childIn reports whether the child of a process has another network than this program.
func childIn(p *Process) bool {
	table, err := tree.ReadFamily(p.Info().PID)
	if err != nil {
		return false
	}
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, m := range table.Members(tree.Key{Root: p.root}) {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", m.PID)); err == nil && link != own {
			return true
		}
	}
	return false
}
