package cli

import (
	"context"
	"slices"
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

// completions list the words for a first argument, of which the shell takes those that begin with what is typed.
var completions = map[string]func(ctx context.Context, cp controlPlane, typed string) ([]string, error){
	argHost: func(ctx context.Context, cp controlPlane, _ string) (ids []string, err error) {
		hosts, err := cp.Hosts(ctx)
		for _, h := range hosts {
			ids = append(ids, h.ID)
		}
		return ids, err
	},
	argPool:         func(ctx context.Context, cp controlPlane, _ string) ([]string, error) { return cp.ListPools(ctx) },
	argWorker:       listWorkers,
	argPoolOrWorker: listWorkers,
}

// listWorkers lists POOL/N; before the slash it lists pools, with and without one.
func listWorkers(ctx context.Context, cp controlPlane, typed string) (words []string, err error) {
	if name, _, slash := strings.Cut(typed, "/"); slash {
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
}

// complete completes the first argument of a command, and a second one that is a file. An error, which a shell cannot
// show, only makes it offer less.
func (a *app) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, _ := usageArguments(cmd)
	if len(args) == 1 && len(names) == 2 && names[1] == argFile {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if len(args) > 0 || len(names) == 0 || completions[names[0]] == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	var words []string
	_ = a.withControlPlane(ctx, func(cp controlPlane) (err error) {
		words, err = completions[names[0]](ctx, cp, typed)
		return err
	})
	if slices.ContainsFunc(words, func(word string) bool { return strings.HasSuffix(word, "/") }) {
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
