package command

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestExecuteReturnsTheExitCodeAndPrintsTheError(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		err  error
		code int
		text string
	}{
		"success": {nil, nil, 0, ""},
		"failure": {nil, errors.New("no network"), 1, "prog: no network\n"},
		"failure at a URL": {nil, errors.New("get https://s3cret@h/?token=s3cret failed"), 1,
			"prog: get https://(hidden)@h/?token=(hidden) failed\n"},
		"wrong URL": {nil, Usagef("--url is %q", "s3://s3cret@h"), 2,
			"prog: --url is \"s3://(hidden)@h\"\nRun 'prog --help' for usage.\n"},
		"usage error":         {nil, Usagef("--n is %d", 0), 2, "prog: --n is 0\nRun 'prog --help' for usage.\n"},
		"unexpected argument": {[]string{"x"}, nil, 2, "prog: unexpected argument \"x\"\nRun 'prog --help' for usage.\n"},
		"unknown flag":        {[]string{"--x"}, nil, 2, "prog: unknown flag: --x\nRun 'prog --help' for usage.\n"},
		"subcommand of nothing": {[]string{"x", "y"}, nil, 2,
			"prog: unexpected argument \"x\"\nRun 'prog --help' for usage.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			command := &cobra.Command{Use: "prog", RunE: func(*cobra.Command, []string) error { return c.err }}
			command.SetErr(&out)
			args := c.args
			if args == nil {
				args = []string{}
			}
			require.Equal(t, c.code, Execute(t.Context(), command, args))
			require.Equal(t, c.text, out.String())
		})
	}
}
