package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// fromEnvironment sets those of a command's own flags that the command line leaves open: TEMPOOL_TLS_CERT stands for
// --tls-cert.
func fromEnvironment(c *cobra.Command) (err error) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		value, set := os.LookupEnv(variable(f.Name))
		if err != nil || !set || f.Changed {
			return
		}
		if wrong := c.Flags().Set(f.Name, value); wrong != nil {
			err = usagef("%s is %q: %w", variable(f.Name), value, wrong)
		}
	})
	return err
}

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	return "TEMPOOL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
