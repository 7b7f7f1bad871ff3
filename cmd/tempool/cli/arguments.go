package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
)

// Names of arguments in usage lines; checkArguments checks an argument by its name.
const (
	argHost         = "HOST"
	argPool         = "POOL"
	argWorker       = "POOL/N"
	argPoolOrWorker = "POOL[/N]"
	argSize         = "N|MIN..MAX|off"
	argLease        = "LEASE"
	argSession      = "SESSION"
	argMethod       = "METHOD"
	argFile         = "FILE"
)

// defineArguments makes c take the arguments of its usage line and complete them, unless c says otherwise.
func (a *app) defineArguments(c *cobra.Command) {
	if c.Args == nil {
		c.Args = takeUsage
	}
	if c.ValidArgsFunction == nil {
		c.ValidArgsFunction = a.complete
	}
}

// usageArguments returns the arguments in the usage line of c, which come before its flags, and how many of them there
// must be: an [ARGUMENT] is optional.
func usageArguments(c *cobra.Command) (names []string, least int) {
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "{") {
			break
		}
		name, optional := strings.CutPrefix(word, "[")
		if optional {
			name = strings.TrimSuffix(name, "]")
		} else {
			least++
		}
		names = append(names, strings.TrimSuffix(name, "|-")) // - is standard input or output
	}
	return names, least
}

// takeUsage allows the arguments of the usage line.
func takeUsage(cmd *cobra.Command, args []string) error {
	names, least := usageArguments(cmd)
	switch {
	case len(names) == 0 && len(args) > 0 && cmd.Flag("file") != nil:
		return usagef("%s takes no arguments; to read a file, write %[1]s -f %[2]s", cmd.CommandPath(), args[0])
	case len(names) == 0 && len(args) > 0:
		return usagef("%s takes no arguments; it got %q", cmd.CommandPath(), args[0])
	case len(args) < least || len(args) > len(names):
		takes := "exactly " + strings.Join(names, " ")
		if least < len(names) {
			takes = strings.TrimPrefix(strings.Join(names[:least], " ")+" and at most one "+names[least], " and ")
		}
		return usagef("%s takes %s; it got %s", cmd.CommandPath(), takes, plural(len(args), "argument"))
	}
	return checkArguments(names, args)
}

// checkArguments checks the form of each argument, before any request is sent.
func checkArguments(names, args []string) error {
	for i, arg := range args {
		var err error
		switch names[i] {
		case argPool:
			err = checkPoolName(arg)
		case argWorker:
			_, _, err = workerName(arg)
		case argPoolOrWorker:
			_, _, err = poolOrWorker(arg)
		case argSize:
			_, err = parseScale(arg)
		case argLease:
			id, _ := api.SplitLeaseID(arg)
			_, err = api.ParseLeaseID(id)
		case argSession:
			err = sessions.CheckID(arg)
		case argMethod:
			if arg == "" {
				err = usagef("METHOD is empty; name the method to call")
			}
		}
		if err != nil {
			return usagef("%s", message(err))
		}
	}
	return nil
}

func checkPoolName(name string) error {
	if pool, _, err := api.ParseWorkerName(name); err == nil {
		return usagef("%q is a worker, not a pool; write %s", name, pool)
	}
	if invalid := api.CheckPoolName(name, api.CodeInvalid); invalid != nil {
		return usagef("%s", invalid.Message)
	}
	return nil
}

// workerName parses POOL/N.
func workerName(name string) (pool string, slot int, err error) {
	pool, slot, err = api.ParseWorkerName(name)
	if err != nil {
		return "", 0, usagef("%q is not a worker; write POOL/N, for example python/0", name)
	}
	return pool, slot, nil
}

// poolOrWorker parses POOL or POOL/N; slot is nil for a whole pool.
func poolOrWorker(name string) (pool string, slot *int, err error) {
	if !strings.Contains(name, "/") {
		return name, nil, checkPoolName(name)
	}
	pool, number, err := workerName(name)
	return pool, &number, err
}

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
