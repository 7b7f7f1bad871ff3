package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
)

// completionTimeout bounds a completion: the shell blocks meanwhile.
const completionTimeout = 2 * time.Second

// completeFlag completes a flag of c with these words.
func completeFlag(c *cobra.Command, flag string, words ...string) {
	mustDefine(c, c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// The functions below offer all words, of which the shell takes those that begin with what is typed.

// completePools completes the first argument with the names of running pools.
func (a *app) completePools(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp,
		func(ctx context.Context, cp controlPlane) ([]string, error) { return cp.ListPools(ctx) })
}

// completeHosts completes the first argument with the ids of hosts.
func (a *app) completeHosts(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp,
		func(ctx context.Context, cp controlPlane) (ids []string, err error) {
			hosts, err := cp.Hosts(ctx)
			for _, h := range hosts {
				ids = append(ids, h.ID)
			}
			return ids, err
		})
}

// completeWorkers completes the first argument with POOL/N; before the slash it offers pools, with and without one.
func (a *app) completeWorkers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, slash := strings.Cut(typed, "/")
	directive := cobra.ShellCompDirectiveNoFileComp
	if !slash {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return a.completeFirst(cmd, args, directive,
		func(ctx context.Context, cp controlPlane) (words []string, err error) {
			if slash {
				status, err := cp.Pool(name).Status(ctx)
				for _, w := range status.Workers {
					words = append(words, api.WorkerName(name, w.Slot))
				}
				return words, err
			}
			pools, err := cp.ListPools(ctx)
			for _, pool := range pools {
				words = append(words, pool, pool+"/")
			}
			return words, err
		})
}

// completeFirst completes a first argument with the words that list returns. On an error it offers nothing: a shell
// cannot show the error.
func (a *app) completeFirst(cmd *cobra.Command, args []string, directive cobra.ShellCompDirective,
	list func(context.Context, controlPlane) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	cp, err := a.dial(ctx, a.options)
	if err != nil {
		return nil, directive
	}
	defer cp.Close()
	words, err := list(ctx, cp)
	if err != nil {
		return nil, directive
	}
	return words, directive
}
