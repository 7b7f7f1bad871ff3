package react_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAComponentIsRendered(t *testing.T) {
	s, err := spec.Load(filepath.Join(setup.Copy(t, "."), "pool.toml"))
	require.NoError(t, err)
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk", "node", "lib", "index.js"))
	require.NoError(t, err)
	s.Pool.Env["NODE_SDK"] = sdk
	p := setup.Start(t, setup.Host(t, nil), s, 1)
	cart := func(props string) (string, error) {
		answer, err := p.Conn().Call(t.Context(), wire.Request{Method: "cart", Payload: []byte(props)})
		if err != nil {
			return "", err
		}
		return string(answer.Payload), nil
	}
	html, err := cart(`{"customer": "<Ada>", "items": [{"name": "Lamp", "price": 19.5}, {"name": "Desk", "price": 80}]}`)
	require.NoError(t, err)
	require.Equal(t, "<main><h1>Cart of <!-- -->&lt;Ada&gt;</h1><ul><li>Lamp<!-- --> <b>19.50</b></li><li>Desk<!-- --> "+
		"<b>80.00</b></li></ul><p>Total: <!-- -->99.50</p></main>", html)
	html, err = cart(`{"customer": "Bob", "items": []}`)
	require.NoError(t, err)
	require.Contains(t, html, "your cart is empty")
	_, err = cart(`{}`)
	var failure *wire.RemoteError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "bad_props", failure.Code)
}

func TestTheServersOwnTestPasses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "node", "--test", "server.test.js")
	command.Env = append(os.Environ(), "NODE_SDK_CLIENT=../../sdk/node/lib/client/index.js",
		"NODE_SDK_TESTING=../../sdk/node/lib/testing/index.js")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}
