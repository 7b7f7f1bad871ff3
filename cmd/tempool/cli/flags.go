package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// checkFlags makes c check its flags before its arguments.
func checkFlags(c *cobra.Command, check func(cmd *cobra.Command) error) {
	checkArgs := c.Args
	if checkArgs == nil {
		checkArgs = takeUsage
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd); err != nil {
			return err
		}
		return checkArgs(cmd, args)
	}
}

// rangeVar defines a flag of c that takes a number from low to high; unset may be another one.
func rangeVar(c *cobra.Command, value *int, flag string, unset, low, high int, usage string) {
	c.Flags().IntVar(value, flag, unset, usage)
	checkFlags(c, func(c *cobra.Command) error {
		if (*value < low || *value > high) && (*value != unset || c.Flags().Changed(flag)) {
			return usagef("--%s is %d; give a number from %d to %d", flag, *value, low, high)
		}
		return nil
	})
}

// mustDefine panics if the definition of c is wrong.
func mustDefine(c *cobra.Command, err error) {
	if err != nil {
		panic(fmt.Sprintf("command %s: %v", c.Name(), err))
	}
}

// choice is a flag that takes one of a few words.
type choice[T ~string] struct {
	value *T
	words []string
}

// String, Type and Set are those of pflag.Value.
func (c choice[T]) String() string { return string(*c.value) }

func (c choice[T]) Type() string { return strings.Join(c.words, "|") }

func (c choice[T]) Set(text string) error {
	if !slices.Contains(c.words, text) {
		last := len(c.words) - 1
		return fmt.Errorf("write %s or %s", strings.Join(c.words[:last], ", "), c.words[last])
	}
	*c.value = T(text)
	return nil
}

// valueWords are what flags take, by the type of their values.
var valueWords = map[string]string{
	"bool": "true or false", "duration": "a duration, such as 30s, 5m or 1h", "float64": "a number",
	"int": "a whole number", "int64": "a whole number", "stringToInt": "N=NUMBER, separated by commas",
}

// flagError says what a flag takes, in place of the error of Go's parser.
func flagError(_ *cobra.Command, err error) error {
	wrong, is := errors.AsType[*pflag.InvalidValueError](err)
	if !is {
		return err
	}
	flag := wrong.GetFlag()
	if words := valueWords[flag.Value.Type()]; words != "" {
		return fmt.Errorf("--%s is %q; write %s", flag.Name, wrong.GetValue(), words)
	}
	return fmt.Errorf("--%s is %q; %w", flag.Name, wrong.GetValue(), wrong.Unwrap())
}

// required marks a flag of c that must be given.
func required(c *cobra.Command, flag string) { mustDefine(c, c.MarkFlagRequired(flag)) }

// requireFlags says what a missing flag is, before cobra says only its name.
func requireFlags(c *cobra.Command) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			err = usagef("%s needs --%s: %s", c.CommandPath(), f.Name, f.Usage)
		}
	})
	return err
}

// specCommand makes c run with the specification in the file of -f, and a connection to the control plane. The file is
// read before tempool connects, so that a mistake in the file is reported even if no server answers.
func (a *app) specCommand(c *cobra.Command,
	run func(ctx context.Context, cp controlPlane, s spec.Spec) error) *cobra.Command {
	path := c.Flags().StringP("file", "f", "", "the pool's specification, a pool.toml")
	required(c, "file")
	mustDefine(c, c.MarkFlagFilename("file", "toml"))
	return a.localCommand(c, func(ctx context.Context, _ []string) error {
		s, err := spec.Load(*path)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return a.withControlPlane(ctx, func(cp controlPlane) error { return run(ctx, cp, s) })
	})
}
