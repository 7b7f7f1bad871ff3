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

// completePoolsAndWorkers completes the first argument with a pool or with POOL/N.
func (a *app) completePoolsAndWorkers(cmd *cobra.Command, args []string,
	typed string) ([]string, cobra.ShellCompDirective) {
	workers, directive := a.completeWorkers(cmd, args, typed)
	if strings.Contains(typed, "/") {
		return workers, directive
	}
	both := []string{}
	for _, pool := range workers {
		both = append(both, strings.TrimSuffix(pool, "/"), pool)
	}
	return both, directive
}

// completeWorkers completes the first argument with POOL/N; before the slash it offers pools.
func (a *app) completeWorkers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, slash := strings.Cut(typed, "/")
	if !slash {
		return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace,
			func(ctx context.Context, cp controlPlane) ([]string, error) {
				pools, err := cp.ListPools(ctx)
				for i := range pools {
					pools[i] += "/"
				}
				return pools, err
			})
	}
	return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp,
		func(ctx context.Context, cp controlPlane) ([]string, error) {
			var workers []string
			status, err := cp.Pool(name).Status(ctx)
			for _, w := range status.Workers {
				workers = append(workers, api.WorkerName(name, w.Slot))
			}
			return workers, err
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
