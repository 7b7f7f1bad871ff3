package interpreter_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type result struct{ Output, Error string }

func run(t *testing.T, p *process.Process, code string) (r result) {
	setup.Call(t, p, "run", map[string]string{"code": code}, &r)
	clean := make(chan struct{})
	p.Recycle(func() { close(clean) }) // as a gateway does after each use
	<-clean
	return r
}

func TestStrangersFindNothingOfEachOtherAndNoNetwork(t *testing.T) {
	need.NetworkNamespaces(t)
	pool, err := spec.Load("pool.toml")
	require.NoError(t, err)
	p := setup.Start(t, setup.Host(t, nil), pool, 1)
	require.Equal(t, result{Output: "3\n"}, run(t, p, "import statistics; statistics.mine = 3; print(statistics.mine)"))
	require.Contains(t, run(t, p, "print(statistics.mine)").Error, "NameError")
	require.Contains(t, run(t, p, "import statistics; print(statistics.mine)").Error, "AttributeError")
	require.Contains(t, run(t, p, "import socket; socket.create_connection(('192.0.2.1', 80), 5)").Error, "unreachable")
	require.Contains(t, run(t, p, "open('/tmp/left', 'w')").Error, "PermissionError")
}
