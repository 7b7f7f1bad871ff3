package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// Command returns the command tree, for what is made from it.
func Command() *cobra.Command { return (&app{}).root() }

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := a.group(&cobra.Command{
		Use:   "tempool",
		Short: "Operate pools of warm, durable worker processes",
		Long: `tempool operates Tempool: it starts, changes and stops pools of worker processes, shows their state,
calls them and leases workers.

--address and --namespace select the Temporal server. Without them tempool uses the standard settings (TEMPORAL_ADDRESS,
TEMPORAL_NAMESPACE, TLS and API key, in the environment or a profile), else localhost:7233 and the namespace "default".

Exit codes: 0 success; 1 failure, stderr says why and what to do; 2 wrong command line.
With -o json a failure prints {"error": {"code", "message"}} to stderr.`,
		Example: `  tempool setup
  tempool pool start -f pool.toml
  tempool ps
  tempool call python measure '{"paths": ["a.py"]}'
  tempool checkout python --holder me --wait 10s`,
	})
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Run Tempool:", []*cobra.Command{a.devCommand(), a.agentCommand(), a.setupCommand(), a.doctorCommand()}},
		{"Pools, workers and hosts:", []*cobra.Command{a.poolCommand(), a.psCommand(), a.topCommand(),
			a.workersCommand(), a.hostsCommand(), a.historyCommand(), a.logsCommand(), a.eventsCommand(), a.uiCommand()}},
		{"Calls, leases and sessions:", []*cobra.Command{a.callCommand(), a.checkoutCommand(), a.checkinCommand(),
			a.sessionsCommand(), a.mcpCommand()}},
		{"Access:", []*cobra.Command{a.tokenCommand(), a.codecServerCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
	const others = "Others:"
	root.AddGroup(&cobra.Group{ID: others, Title: others})
	root.SetHelpCommandGroupID(others)
	root.SetCompletionCommandGroupID(others)
	root.SetFlagErrorFunc(flagError)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }

	a.format = formatTable
	flags := root.PersistentFlags()
	flags.VarP(choice[outputFormat]{&a.format, outputFormats}, "output", "o",
		"a table, one with whole texts, JSON for programs, or only names")
	completeFlag(root, "output", outputFormats...)
	flags.StringVar(&a.options.Address, "address", "",
		"Temporal's HOST:PORT (default: the standard Temporal settings, else localhost:7233)")
	flags.StringVar(&a.options.Namespace, "namespace", "",
		`Temporal namespace (default: the standard Temporal settings, else "default")`)
	flags.StringVar(&a.options.Payloads.KeyFile, "payload-keys", "",
		"file with the keys that encrypt what Temporal stores (default: TEMPOOL_PAYLOAD_KEYS, else none)")
	flags.StringVar(&a.options.Payloads.CodecEndpoint, "codec-endpoint", "",
		"base URL of a codec server, instead of --payload-keys (default: the standard Temporal settings)")
	flags.StringVar(&a.options.Payloads.CodecAuth, "codec-auth", "", "Authorization header for the codec server")
	flags.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long one request to Temporal and the agents may take")
	root.Version = "see versionText" // defines --version
	root.SetVersionTemplate("{{version}}")
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flags().Changed("timeout") { // else a command soon says that no agent answers
			a.options.QueryTimeout = a.timeout
		}
		if _, known := c.Annotations[hasNames]; a.format == formatName && !known {
			return usagef("%s has no names to print; use another -o", c.CommandPath())
		}
		if a.timeout <= 0 {
			return usagef("--timeout is %s; give a duration above zero, such as 30s", a.timeout)
		}
		return requireFlags(c)
	}
	a.completeCobra(root)
	return root
}

// group makes a command that only holds others.
func (a *app) group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.AddCommand(commands...)
	c.DisableFlagsInUseLine = true
	c.SuggestionsMinimumDistance = 2
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return usagef("%s needs one of the commands %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	return c
}

// completeCobra adds examples and usage errors to the commands that cobra itself brings.
func (a *app) completeCobra(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range walk(root) {
		switch {
		case c.HasParent() && c.Parent().Name() == "completion": // whose text says where to put it
			c.Example = "  " + c.CommandPath()
		case c.Name() == "help":
			c.Example = "  tempool help pool start"
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usagef("unknown command %q; %s --help lists the commands", strings.Join(args, " "),
						found.CommandPath())
				}
				return nil
			}
		case c.Name() == "completion":
			c.Example = "  tempool completion bash"
			a.group(c)
		}
	}
}

// walk returns a command and all commands below it.
func walk(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, walk(sub)...)
	}
	return all
}
