package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// completionTimeout bounds what a press of the Tab key may wait for; a shell hangs for as long.
const completionTimeout = 2 * time.Second

// completeFlag completes a flag with these words; c defines the flag.
func completeFlag(c *cobra.Command, flag string, words ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("command " + c.Name() + ": " + err.Error())
	}
}

// completePools completes the first argument with the names of running pools.
func (a *app) completePools(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp, func(ctx context.Context, cp controlPlane) ([]string, error) {
		pools, err := cp.ListPools(ctx)
		return withPrefix(pools, typed), err
	})
}

// completePoolsAndWorkers completes the first argument with a pool or with POOL/SLOT.
func (a *app) completePoolsAndWorkers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	workers, directive := a.completeWorkers(cmd, args, typed)
	if strings.Contains(typed, "/") {
		return workers, directive
	}
	either := []string{}
	for _, pool := range workers {
		either = append(either, strings.TrimSuffix(pool, "/"), pool)
	}
	return either, directive
}

// completeWorkers completes the first argument with POOL/SLOT; before the slash it offers pools.
func (a *app) completeWorkers(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, slash := strings.Cut(typed, "/")
	if !slash {
		return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace,
			func(ctx context.Context, cp controlPlane) ([]string, error) {
				pools, err := cp.ListPools(ctx)
				for i := range pools {
					pools[i] += "/"
				}
				return withPrefix(pools, typed), err
			})
	}
	return a.completeFirst(cmd, args, cobra.ShellCompDirectiveNoFileComp, func(ctx context.Context, cp controlPlane) ([]string, error) {
		var workers []string
		status, err := cp.Pool(name).Status(ctx)
		for _, w := range status.Workers {
			workers = append(workers, api.WorkerName(name, w.Slot))
		}
		return withPrefix(workers, typed), err
	})
}

// completeSlots completes the flag --worker with the slots of the pool that is named already.
func (a *app) completeSlots(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeFirst(cmd, nil, cobra.ShellCompDirectiveNoFileComp, func(ctx context.Context, cp controlPlane) ([]string, error) {
		var slots []string
		status, err := cp.Pool(args[0]).Status(ctx)
		for _, w := range status.Workers {
			slots = append(slots, strconv.Itoa(w.Slot))
		}
		return slots, err
	})
}

// completeFirst asks the control plane for completions of a first argument. A failure offers nothing: the shell has no place
// to show it.
func (a *app) completeFirst(cmd *cobra.Command, args []string, directive cobra.ShellCompDirective,
	ask func(context.Context, controlPlane) ([]string, error)) ([]string, cobra.ShellCompDirective) {
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
	words, err := ask(ctx, cp)
	if err != nil {
		return nil, directive
	}
	return words, directive
}

func withPrefix(words []string, prefix string) []string {
	var fitting []string
	for _, word := range words {
		if strings.HasPrefix(word, prefix) {
			fitting = append(fitting, word)
		}
	}
	return fitting
}

// specFile gives a leaf the flag that names a pool.toml, which is read into s before anything is asked of Temporal: a mistake in
// the file is to be told whether or not a server answers.
func (a *app) specFile(c *cobra.Command, s *spec.Spec) {
	path := c.Flags().StringP("file", "f", "", "the pool's specification, a pool.toml")
	required(c, "file")
	if err := c.MarkFlagFilename("file", "toml"); err != nil {
		panic("command " + c.Name() + ": " + err.Error())
	}
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		a.running = true
		var err error
		if *s, err = spec.Load(*path); err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return run(cmd, args)
	}
}
