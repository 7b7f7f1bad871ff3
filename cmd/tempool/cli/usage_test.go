package cli

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/lint/docs"
)

func TestUsageErrorsExitWith2AndSendNoRequest(t *testing.T) {
	for line, says := range map[string]string{
		"nonsense":                                    `unknown command "nonsense"`,
		"pool":                                        "needs one of the commands apply, diff, halt, list",
		"pool strat":                                  "did you mean start?",
		"workers":                                     "needs one of the commands drain",
		"help nonsense":                               `unknown command "nonsense"`,
		"completion nosh":                             "unknown command",
		"ps a b":                                      "at most one POOL",
		"ps Bad!":                                     `invalid pool name "Bad!"`,
		"ps -o xml":                                   `--output is "xml"; write table, wide, json or name`,
		"top a b":                                     "at most one POOL",
		"logs":                                        "takes exactly POOL[/N]",
		"logs Bad!":                                   `invalid pool name "Bad!"`,
		"logs python -f --previous":                   "mutually exclusive",
		"logs python -n -1":                           "--lines is -1",
		"logs python/0 --since -1m":                   "give a duration above zero",
		"ps --nonsense":                               "unknown flag: --nonsense",
		"ps --timeout 0s":                             "--timeout is 0s",
		"ps --timeout soon":                           `--timeout is "soon"; write a duration, such as 30s`,
		"logs python -n x":                            `--lines is "x"; write a whole number; see tempool logs`,
		"pool list x":                                 "takes no arguments",
		"pool start":                                  `needs --file: the pool's specification, a pool.toml`,
		"pool start p.toml":                           "to read a file, write tempool pool start -f p.toml",
		"pool start -f p.toml --wait-timeout 0":       "--wait-timeout is 0s",
		"pool apply":                                  `needs --file: the pool's specification, a pool.toml`,
		"pool stop":                                   "takes exactly POOL",
		"pool status python/0":                        `"python/0" is a worker, not a pool; write python`,
		"pool scale python":                           "takes exactly POOL N|MIN..MAX|off; it got 1 argument",
		"pool scale python many":                      `"many" is not a number of workers`,
		"pool scale python 0":                         "at least 1",
		"pool scale python 8..2":                      `"8..2" is not a range of workers; write MIN..MAX`,
		"pool scale python 2..":                       `"2.." is not a range of workers`,
		"pool scale python -3":                        "unknown shorthand flag: '3' in -3",
		"pool scale python -x":                        "unknown shorthand flag: 'x' in -x",
		"workers drain":                               "takes exactly POOL[/N]",
		"hosts drain":                                 "takes exactly HOST",
		"workers drain python/-2":                     "write POOL/N",
		"workers restart python/x":                    "write POOL/N",
		"pool stop python -o name":                    "has no names to print",
		"pool halt python -o name":                    "has no names to print",
		"pool diff":                                   `needs --file: the pool's specification, a pool.toml`,
		"history python":                              "write POOL/N",
		"events a b":                                  "at most one POOL",
		"events --since yesterday":                    "--since is",
		"events --gateway nowhere":                    "write http://HOST:PORT",
		"history python/x":                            "write POOL/N",
		"checkout python":                             `needs --holder: `,
		"checkout python --holder=":                   "--holder is empty",
		"checkout python --holder me --ttl 0":         "--ttl is 0s",
		"checkout python/-1 --holder me":              "write POOL/N",
		"checkout python --holder me --wait=-1s":      "--wait is -1s",
		"call hello":                                  "takes POOL[/N] METHOD",
		"call Bad! greet":                             "invalid pool name",
		"call hello greet {} {}":                      "at most one BODY",
		"call hello greet --gateway nowhere":          "write http://HOST:PORT",
		"call hello greet --priority 10":              "--priority is 10",
		"call hello greet --timeout 0s":               "--timeout is 0s",
		"sessions":                                    "needs one of the commands",
		"sessions get hello":                          "takes exactly POOL SESSION",
		"sessions get hello a/b":                      "other than the slash",
		"sessions list hello --limit 0":               "--limit is 0",
		"sessions migrate hello me":                   `needs --to: `,
		"sessions migrate hello me --to other/1":      "not a worker of pool hello",
		"sessions migrate hello me --to 1":            "write POOL/N",
		"sessions evacuate hello":                     "write POOL/N",
		"sessions evacuate hello/1 --exclude-for=-1s": "--exclude-for is -1s",
		"sessions rebalance hello --weight a=1":       "--weight a=1",
		"sessions rebalance hello --weight 0=x":       `--weight is "0=x"; write N=NUMBER`,
		"sessions rebalance hello --weight 0=-1":      "--weight 0=-1",
		"checkin":                                     "takes exactly LEASE",
		"checkin python/0":                            "invalid lease ID",
		"checkin python.0.1.1 --outcome bad":          "write ok, error or close",
		"checkin python.0.1.1 --error oops":           "--error needs",
		"pool apply -f x.toml --if-version 0":         "--if-version is 0",
		"dev python":                                  "write tempool dev -f python",
		"dev --pol x":                                 "unknown flag",
		"dev --port 0":                                "--port is 0",
		"dev --ui-port 65536":                         "--ui-port is 65536",
		"dev --listen=":                               "--listen is empty",
		"dev --port 7000 --ui-port 7000":              "both 7000",
		"dev --address h:1 --port 7000":               "a running server",
		"dev --address h:1 --ui-port 7000":            "a server of its own",
		"dev --timeout 5s":                            "runs until it is stopped",
		"agent --timeout 5s":                          "runs until it is stopped",
		"setup now":                                   "takes no arguments",
	} {
		t.Run(line, func(t *testing.T) {
			f := newFakeControlPlane()
			f.dialErr = errors.New("a mistake in the command line must be found before anything is dialled")
			r := ctl(t, f, strings.Fields(line)...)
			requireCode(t, ExitUsage, r)
			require.Contains(t, r.err, says)
			require.True(t, strings.HasPrefix(r.err, "tempool: "), r.err)
			require.Equal(t, 1, strings.Count(r.err, "\n"), "one sentence: %s", r.err)
			require.Contains(t, r.err, "--help")
			require.Empty(t, r.out)

			if !strings.Contains(line, "-o ") {
				asJSON := ctl(t, f, append(strings.Fields(line), "-o", "json")...)
				requireCode(t, ExitUsage, asJSON)
				require.Equal(t, "usage", failure(t, asJSON).Code)
			}
		})
	}
}

// failure reads the JSON error on stderr.
func failure(t *testing.T, r result) (e struct{ Code, Message string }) {
	t.Helper()
	var object struct {
		Error *struct{ Code, Message string } `json:"error"`
	}
	decoder := json.NewDecoder(strings.NewReader(r.err))
	for decoder.More() { // warnings come first
		require.NoError(t, decoder.Decode(&object), r.err)
	}
	require.NotNil(t, object.Error, r.err)
	return *object.Error
}

func TestFailuresExitWith1AndSayWhatToDo(t *testing.T) {
	refused := api.Errorf(api.CodePoolNotFound, "no pool ghost is running; tempool pool list names those that are")
	for name, c := range map[string]struct {
		err           error
		code, message string
	}{
		"a coded error": {refused, "pool_not_found",
			"no pool ghost is running; tempool pool list names those that are"},
		"one that is wrapped": {fmt.Errorf("outer: %w", refused), "pool_not_found",
			"no pool ghost is running; tempool pool list names those that are"},
		"one without a code": {errors.New("disk on fire"), "unexpected", "disk on fire"},
		"an interruption": {fmt.Errorf("asking: %w", context.Canceled), "interrupted",
			"interrupted; the operation continues in Temporal, run tempool ps to follow it"},
		"an unknown token": {&api.Error{Code: api.CodeUnauthorized, Message: "invalid token"}, "unauthorized",
			"invalid token; give tempool the token with --token-file or in TEMPOOL_TOKEN"},
		"an unknown CA": {api.Errorf(api.CodeUnavailable, "no answer: %w", x509.UnknownAuthorityError{}),
			"unavailable", "no answer: x509: certificate signed by unknown authority; name the gateway's CA certificates with " +
				"--ca-file or in TEMPOOL_CA_FILE"},
		"a missing worker": {api.Errorf(api.CodeWorkerNotFound, "check out python/9: %w", serviceerror.NewNotFound("gone")),
			"worker_not_found", "check out python/9: gone; run tempool ps to list the workers"},
		"a code without a sentence": {api.ErrBusy, "busy", "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeControlPlane(&fakePool{name: "ghost", err: c.err})
			r := fail(t, f, "pool", "status", "ghost")
			require.Equal(t, "tempool: "+c.message+"\n", r.err)
			asJSON := fail(t, f, "pool", "status", "ghost", "--output=json")
			require.Equal(t, c.code, failure(t, asJSON).Code)
			require.Equal(t, c.message, failure(t, asJSON).Message)
			require.Empty(t, asJSON.out)
		})
	}
}

func TestEveryCommandIsDocumentedAndTakesAFormat(t *testing.T) {
	a := &app{}
	root := a.root()
	leaves := 0
	for _, c := range walk(root) {
		require.NotEmpty(t, c.Short, "%s lacks a short description", c.CommandPath())
		require.NotEmpty(t, c.Example, "%s lacks an example", c.CommandPath())
		for _, line := range strings.Split(c.Example, "\n") {
			require.Contains(t, line, "tempool", "an example of %s does not use tempool", c.CommandPath())
		}
		output := c.InheritedFlags().Lookup("output")
		if c == root {
			output = c.PersistentFlags().Lookup("output")
		}
		require.NotNil(t, output, "%s lacks -o", c.CommandPath())
		require.Equal(t, "o", output.Shorthand)
		require.True(t, c.Runnable(), "%s does nothing", c.CommandPath())
		if !c.HasSubCommands() {
			leaves++
		}
	}
	require.GreaterOrEqual(t, leaves, 19)
}

// Users copy examples, so those that are a plain tempool command line must parse.
func TestExamplesParse(t *testing.T) {
	for _, c := range walk((&app{}).root()) {
		for _, line := range strings.Split(c.Example, "\n") {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "tempool ") || strings.ContainsAny(line, `"'>|$`) {
				continue
			}
			t.Run(line, func(t *testing.T) {
				a := &app{}
				root := a.root()
				found, args, err := root.Find(strings.Fields(line)[1:])
				require.NoError(t, err)
				require.NoError(t, found.ParseFlags(args))
				require.NoError(t, found.ValidateArgs(found.Flags().Args()))
				require.NoError(t, found.ValidateRequiredFlags())
			})
		}
	}
}

func TestFlagsSelectTheTemporalServer(t *testing.T) {
	f := newFakeControlPlane()
	succeed(t, f, "pool", "list", "--address", "example:1", "--namespace", "blue")
	require.Equal(t, "example:1", f.options.Address)
	require.Equal(t, "blue", f.options.Namespace)
	require.Equal(t, 1, f.closed)
}

func TestCompletionOffersPoolsWorkersAndSlots(t *testing.T) {
	two := roster(api.RosterEntry{Slot: 0}, api.RosterEntry{Slot: 1})
	f := newFakeControlPlane(&fakePool{name: "python", statuses: []api.PoolStatus{two}}, &fakePool{name: "mcp"})
	f.hosts = []tempool.Host{{ID: "web-1"}, {ID: "db"}}
	for line, want := range map[string][]string{ // the shell takes those that fit what is typed
		"ps p":                     {"python", "mcp"},
		"pool status m":            {"python", "mcp"},
		"pool stop python another": nil,
		"history py":               {"python", "python/", "mcp", "mcp/"},
		"history python/":          {"python/0", "python/1"},
		"checkout m":               {"python", "python/", "mcp", "mcp/"},
		"call py":                  {"python", "python/", "mcp", "mcp/"},
		"workers release python/":  {"python/0", "python/1"},
		"sessions get p":           {"python", "mcp"},
		"checkout python/1":        {"python/0", "python/1"},
		"workers drain python/1":   {"python/0", "python/1"},
		"ps -o j":                  {"table", "wide", "json", "name"},
		"hosts drain w":            {"web-1", "db"},
		"checkin x --outcome o":    {"ok", "error", "close"},
	} {
		t.Run(line, func(t *testing.T) {
			r := succeed(t, f, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Fields(line)...)...)
			var offered []string
			for _, word := range strings.Fields(r.out) {
				if !strings.HasPrefix(word, ":") {
					offered = append(offered, word)
				}
			}
			require.ElementsMatch(t, want, offered)
		})
	}
}

func TestCompletionOffersNothingWithoutAServer(t *testing.T) {
	f := newFakeControlPlane()
	f.dialErr = errors.New("nobody there")
	r := succeed(t, f, cobra.ShellCompNoDescRequestCmd, "ps", "")
	require.Equal(t, fmt.Sprintf(":%d\n", cobra.ShellCompDirectiveNoFileComp), r.out)
}

func TestHelpFitsATerminalAndNamesTheFlagsOfAllCommandsOnce(t *testing.T) {
	for _, c := range walk((&app{}).root()) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		r := succeed(t, newFakeControlPlane(), args...)
		for line := range strings.Lines(r.out) {
			if width := len([]rune(strings.TrimRight(line, "\n"))); width > 100 {
				t.Errorf("%s: %d wide: %s", c.CommandPath(), width, line)
			}
		}
		require.Equal(t, !c.HasParent(), strings.Contains(r.out, "--namespace string"), c.CommandPath())
	}
}

func TestVersionAndSetup(t *testing.T) {
	require.Regexp(t, `^tempool +\d+\.\d+\.\d+\n(?s:.*)go +go1\.(?s:.*)state formats +1`,
		ctl(t, newFakeControlPlane(), "--version").out)

	f := newFakeControlPlane()
	require.Equal(t, "namespace test is ready for Tempool: nothing to add\n", ctl(t, f, "setup").out)
	require.JSONEq(t, `{"namespace": "test", "added": []}`, ctl(t, f, "setup", "-o", "json").out)
	f.missing = []string{"TempoolPool", "TempoolHost"}
	require.Contains(t, ctl(t, f, "setup").out, "added the search attributes TempoolPool, TempoolHost")
}

func TestThePageOfCtlNamesEveryCommand(t *testing.T) {
	page := docs.Read(t, "docs/operations/commands.md")
	for _, c := range walk((&app{}).root()) {
		if c.HasSubCommands() && c.Name() != "completion" || c.Name() == "help" || c.HasParent() &&
			c.Parent().Name() == "completion" {
			continue
		}
		require.True(t, strings.Contains(page, "`"+c.CommandPath()), "docs/operations/commands.md lacks %s", c.CommandPath())
	}
}
