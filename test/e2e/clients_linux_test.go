package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/gateway/access/accesstest"
	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
)

// debianPython has the library of the asynchronous client.
const debianPython = "/usr/bin/python3"

func TestThePythonClientCallsAPool(t *testing.T) {
	env := oneHost(t, "pyclient", "--listen", "127.0.0.1:0")
	s := pythonSpec("called", 2, "called.py")
	env.startPool(s)
	out := runClient(t, ".", []string{"PYTHONPATH=" + s.Pool.Env["PYTHONPATH"]},
		"python3", "-W", "error", filepath.Join("testdata", "caller.py"), env.socket("pyclient"))
	require.Equal(t, "all is well\n", out)
}

// The asynchronous clients call ten workers of two hosts, over TLS and with a token.
func TestTheAsynchronousClientsCallAPoolOfTwoHosts(t *testing.T) {
	env := newEnv(t)
	cert, key, authority, _ := accesstest.CertifyBy(t, env.dir, "127.0.0.1")
	tokens := filepath.Join(env.dir, "tokens.toml")
	secret := accesstest.AddToken(t, tokens, "caller", []string{"called"}, "call", "lease", "read", "sessions")
	for _, host := range []string{"one", "two"} {
		env.startAgent(host, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tokens", tokens,
			"--capacity", "5")
	}
	s := pythonSpec("called", 10, "called.py")
	status := asked(env, env.startPool(s).Status)
	var gateways []string
	for _, w := range status.Workers {
		gateways = append(gateways, w.Endpoint)
	}
	slices.Sort(gateways)
	gateways = slices.Compact(gateways)
	require.Len(t, gateways, 2)
	settings := []string{"TEMPOOL_GATEWAY=" + strings.Join(gateways, ","), "TEMPOOL_TOKEN=" + secret,
		"TEMPOOL_CA_FILE=" + authority, "PYTHONPATH=" + s.Pool.Env["PYTHONPATH"]}
	t.Run("node", func(t *testing.T) {
		t.Log(runClient(t, ".", settings, "node", filepath.Join("testdata", "caller.mjs")))
	})
	t.Run("python", func(t *testing.T) {
		need.PythonModule(t, debianPython, "httpx")
		t.Log(runClient(t, ".", settings, debianPython, filepath.Join("testdata", "caller_async.py")))
	})
}

// The two first projects are installed as their users install them, from the packages.
func TestTheFirstProjects(t *testing.T) {
	env := oneHost(t, "first", "--listen", "127.0.0.1:0", "--capacity", "4")
	gateway := "TEMPOOL_GATEWAY=unix:" + env.socket("first")
	sdk, err := filepath.Abs(filepath.Join("..", "..", "sdk"))
	require.NoError(t, err)

	t.Run("node", func(t *testing.T) {
		example := filepath.Join("..", "..", "examples", "first-node")
		project := setup.Copy(t, example)
		above := filepath.Dir(project) // of what is not found in the project
		runClient(t, filepath.Join(sdk, "node"), nil, "npm", "pack", "--silent", "--pack-destination", above)
		runClient(t, above, nil, "npm", "install", "--offline", "--no-save", "--no-audit", "--no-fund", "--prefix", above,
			filepath.Join(above, "tempool-0.1.0.tgz"))
		runClient(t, project, nil, "node_modules/.bin/tsc")
		env.startPool(loadSpec(t, project))
		require.Equal(t, "Hello, Ada!\n0\n1\n2\naborted: TimeoutError\nHello, Bob!\nHello, Eve!\nHello, again! true\n",
			runClient(t, project, []string{gateway}, "node", "main.js"))
	})
	t.Run("python", func(t *testing.T) {
		need.Program(t, "mypy")
		need.PythonModule(t, debianPython, "httpx, build, wheel")
		source, project := filepath.Join(t.TempDir(), "source"), t.TempDir()
		require.NoError(t, os.CopyFS(source, os.DirFS(filepath.Join(sdk, "python"))))
		require.NoError(t, os.CopyFS(project, os.DirFS(filepath.Join("..", "..", "examples", "first-python"))))
		runClient(t, source, nil, debianPython, "-m", "build", "--no-isolation", "--outdir", project)
		runClient(t, project, nil, debianPython, "-m", "venv", "--system-site-packages", "venv")
		runClient(t, project, nil, "venv/bin/pip", "install", "--no-index", "--no-deps", "tempool-0.1.0-py3-none-any.whl")
		runClient(t, project, nil, "mypy", "--strict", "--python-executable", "venv/bin/python", "main.py", "worker.py")
		s := loadSpec(t, project)
		s.Pool.Command[0] = filepath.Join(project, "venv", "bin", "python")
		env.startPool(s)
		out := runClient(t, project, []string{gateway}, "venv/bin/python", "main.py")
		require.Contains(t, out, "Hello, Ada!\n[0, 1, 2]\n")
		require.Regexp(t, `failed: greet on first-python/\d failed: invalid_params`, out)
		require.Contains(t, out, "Hello, again!\n")
	})
}
