package cli

import (
	"strings"

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

// usageArguments returns the arguments in the usage line of c, which come before its flags. [ARGUMENT] is optional, and
// no other argument goes with it.
func usageArguments(c *cobra.Command) (names []string, optional bool) {
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "{") {
			break
		}
		if name, found := strings.CutPrefix(word, "["); found {
			word, optional = strings.TrimSuffix(name, "]"), true
		}
		names = append(names, strings.TrimSuffix(word, "|-")) // - is standard input or output
	}
	return names, optional
}

// takeUsage allows the arguments of the usage line.
func takeUsage(cmd *cobra.Command, args []string) error {
	names, optional := usageArguments(cmd)
	switch {
	case len(names) == 0 && len(args) > 0 && cmd.Flag("file") != nil:
		return usagef("%s takes no arguments; to read a file, write %[1]s -f %[2]s", cmd.CommandPath(), args[0])
	case len(names) == 0 && len(args) > 0:
		return usagef("%s takes no arguments; it got %q", cmd.CommandPath(), args[0])
	case optional && len(args) > 1:
		return usagef("%s takes at most one %s; it got %d arguments", cmd.CommandPath(), names[0], len(args))
	case !optional && len(args) != len(names):
		return usagef("%s takes exactly %s; it got %s", cmd.CommandPath(), strings.Join(names, " "),
			plural(len(args), "argument"))
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
			_, err = api.ParseLeaseID(leaseID(arg))
		case argSession:
			err = sessions.CheckID(arg)
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
