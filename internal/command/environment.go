package command

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// envPrefix starts the name of an environment variable that stands for a flag: TEMPOOL_TLS_CERT for --tls-cert.
const envPrefix = "TEMPOOL_"

// FromEnvironment sets flags of a command that the command line does not, from the environment. Call it after the
// command line was parsed. An invalid value is a UsageError.
func FromEnvironment(c *cobra.Command, names ...string) error {
	flags := c.Flags()
	for _, name := range names {
		variable := Variable(name)
		value, set := os.LookupEnv(variable)
		if !set || flags.Changed(name) {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return Usagef("%s is %q: %w", variable, value, err)
		}
	}
	return nil
}

// Variable returns the environment variable that stands for a flag.
func Variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
