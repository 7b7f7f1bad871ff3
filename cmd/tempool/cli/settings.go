package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/spec"
)

// settings are flags that can be set elsewhere, too: TEMPOOL_TLS_CERT in the environment, and tls_cert in a file, stand
// for --tls-cert. The command line wins over the environment, and the environment over the file.
type settings struct {
	flags     []*pflag.Flag
	inherited []string          // names of further flags, which parents of the command define
	from      map[string]string // where the value of a flag comes from, unless it is the default
}

// settingsOf makes settings of the flags that c has so far, and of inherited ones.
func settingsOf(c *cobra.Command, inherited ...string) *settings {
	s := &settings{from: map[string]string{}, inherited: inherited}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			s.flags = append(s.flags, f)
		}
	})
	return s
}

// key is the name of a flag in a file.
func key(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	switch flag {
	case "address", "namespace":
		return "TEMPORAL_" + strings.ToUpper(flag)
	}
	return "TEMPOOL_" + strings.ToUpper(key(flag))
}

// fromEnvironment sets what the command line of c leaves open.
func (s *settings) fromEnvironment(c *cobra.Command) error {
	for _, name := range s.inherited {
		s.flags = append(s.flags, c.Flag(name))
	}
	for _, f := range s.flags {
		value, set := os.LookupEnv(variable(f.Name))
		switch {
		case f.Changed:
			s.from[f.Name] = "--" + f.Name
		case set:
			if err := f.Value.Set(value); err != nil {
				return usagef("%s is %q: %w", variable(f.Name), value, err)
			}
			s.from[f.Name] = variable(f.Name)
		}
	}
	return nil
}

// fromFile sets what the command line and the environment leave open: all that the file has, or only some flags. An
// error about the content is a *spec.Error.
func (s *settings) fromFile(path string, only ...string) error {
	byKey, known := map[string]*pflag.Flag{}, []string{}
	for _, f := range s.flags {
		byKey[key(f.Name)], known = f, append(known, key(f.Name))
	}
	found, err := spec.Settings(path, known)
	if err != nil {
		return err
	}
	for _, one := range found {
		f := byKey[one.Key]
		from := s.from[f.Name]
		if from != "" && !strings.HasPrefix(from, path+":") || only != nil && !slices.Contains(only, f.Name) {
			continue
		}
		if e := setFlag(f.Value, one.Value); e != nil {
			e.File, e.Line, e.Key = path, one.Line, one.Key
			return e
		}
		s.from[f.Name] = fmt.Sprintf("%s:%d", path, one.Line)
	}
	return nil
}

// setFlag sets a flag to a value of TOML, which must have the flag's type.
func setFlag(f pflag.Value, value any) *spec.Error {
	wrong := &spec.Error{Problem: fmt.Sprintf("%v is not allowed", value), Allowed: "a string"}
	if list, isList := f.(pflag.SliceValue); isList {
		wrong.Allowed = "a list of strings"
		values, _ := value.([]any)
		words := []string{}
		for _, v := range values {
			if word, isString := v.(string); isString {
				words = append(words, word)
			}
		}
		if value == nil || len(words) < max(1, len(values)) || list.Replace(words) != nil {
			return wrong
		}
		return nil
	}
	_, right := value.(string)
	switch f.Type() {
	case "bool":
		_, right = value.(bool)
		wrong.Allowed = "true or false"
	case "int":
		_, right = value.(int64)
		wrong.Allowed = "a whole number"
	}
	if !right {
		return wrong
	}
	if err := f.Set(fmt.Sprint(value)); err != nil {
		return &spec.Error{Problem: fmt.Sprintf("%q is not allowed: %v", fmt.Sprint(value), err)}
	}
	return nil
}

// setting is one value in force.
type setting struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	From  string `json:"from"`
}

func (s *settings) inForce() []setting {
	all := []setting{}
	for _, f := range s.flags {
		one := setting{Key: key(f.Name), Value: redact.URLs(f.Value.String()), From: cmp.Or(s.from[f.Name], "default")}
		if list, isList := f.Value.(pflag.SliceValue); isList {
			one.Value = append([]string{}, list.GetSlice()...) // [] and not null, which TOML does not have
		} else if f.Value.Type() == "bool" || f.Value.Type() == "int" {
			one.Value = json.RawMessage(f.Value.String())
		}
		all = append(all, one)
	}
	return all
}

// writeSettings writes the settings as a file that sets them: TOML has the texts, numbers and lists of JSON.
func writeSettings(text *strings.Builder, all []setting) {
	for _, one := range all {
		var value strings.Builder
		_ = writeJSONLine(&value, one.Value) // into memory
		list := strings.ReplaceAll(strings.TrimSpace(value.String()), `","`, `", "`)
		fmt.Fprintf(text, "%-60s # %s\n", one.Key+" = "+list, one.From)
	}
}
