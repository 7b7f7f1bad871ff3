package cli

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
)

// defaultTokensFile is the tokens file without --tokens.
const defaultTokensFile = "tokens.toml"

// tokensCommand makes c run with the tokens file, which it reads or changes.
func (a *app) tokensCommand(c *cobra.Command, run func(path string, args []string) error) *cobra.Command {
	path := c.Flags().String("tokens", defaultTokensFile, "the tokens file, as given to the agents with --tokens")
	mustDefine(c, c.MarkFlagFilename("tokens", "toml"))
	return a.localCommand(c, func(_ context.Context, args []string) error { return run(*path, args) })
}

func (a *app) tokenCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "token",
		Short: "Grant clients rights at gateways",
		Long: `Manage the file of the tokens that a gateway accepts. An agent with --tokens FILE rereads the file
within a second of a change. The file has only hashes: each token is printed once, when it is added.`,
		Example: `  tempool token add ci --pools 'py*' --rights call,lease
  tempool token list
  tempool token remove ci`,
	}, a.tokenAddCommand(), a.tokenListCommand(), a.tokenRemoveCommand())
}

// newToken is the result of tempool token add.
type newToken struct {
	access.Token
	Secret string `json:"token"`
}

func (a *app) tokenAddCommand() *cobra.Command {
	var token access.Token
	var priority int
	c := a.tokensCommand(&cobra.Command{
		Use:   "add NAME --rights RIGHTS",
		Short: "Make a token and print it once",
		Long: `Make a token and print it, once. The rights are call (call the pools), lease (check workers out and use
the leases), sessions (read and write clients' sessions), read (read the state of pools and workers, and metrics) and
admin (act as the operator).`,
		Example: `  tempool token add ci --pools 'py*' --rights call,lease
  tempool token add batch --rights call --max-priority 2 --tokens /etc/tempool/tokens.toml`,
	}, func(path string, args []string) error {
		secret, hash := access.NewSecret()
		token.Name, token.SHA256, token.CreatedAt = args[0], hash, a.now().UTC().Truncate(time.Second)
		if priority < access.MaxPriority {
			token.MaxPriority = &priority
		}
		if err := access.Add(path, token); err != nil {
			return err
		}
		return a.printMessage(newToken{token, secret}, "%s", secret)
	})
	c.Flags().StringSliceVar(&token.Pools, "pools", []string{"*"}, "globs of the pools that the token is for")
	c.Flags().StringSliceVar(&token.Rights, "rights", nil, "rights of the token: "+access.All.String())
	rangeVar(c, &priority, "max-priority", access.MaxPriority, 0, access.MaxPriority,
		"highest priority of the token's calls in a queue, 0 to 9; higher ones are lowered")
	required(c, "rights")
	completeFlag(c, "rights", access.All.Names()...)
	return c
}

func (a *app) tokenListCommand() *cobra.Command {
	return a.tokensCommand(withNames(&cobra.Command{
		Use: "list", Short: "List the tokens", Example: "  tempool token list --tokens /etc/tempool/tokens.toml",
	}), func(path string, _ []string) error {
		file, err := access.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return api.Errorf(api.CodeInvalid,
				"the tokens file %s does not exist; name another one with --tokens, or create it with tempool token add", path)
		}
		if err != nil {
			return err
		}
		file.Tokens = append([]access.Token{}, file.Tokens...) // [] in JSON
		return a.printResult(file.Tokens, func(text *strings.Builder) {
			tableOf(text, []string{"NAME", "POOLS", "RIGHTS", "CREATED"}, file.Tokens, func(t access.Token) []string {
				created := "-"
				if !t.CreatedAt.IsZero() {
					created = t.CreatedAt.Format(time.RFC3339)
				}
				return []string{t.Name, strings.Join(t.Pools, ","), strings.Join(t.Rights, ","), created}
			})
		})
	})
}

func (a *app) tokenRemoveCommand() *cobra.Command {
	return a.tokensCommand(&cobra.Command{
		Use: "remove NAME", Short: "Remove a token", Example: "  tempool token remove ci",
	}, func(path string, args []string) error {
		if err := access.Remove(path, args[0]); err != nil {
			return err
		}
		return a.printMessage(map[string]string{"removed": args[0]}, "removed token %s; gateways refuse it within a second",
			args[0])
	})
}
