package spec

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tempool/tempool/internal/redact"
)

// Hidden stands for a value that may be a secret.
const Hidden = redact.Mark

// WithoutSecrets is the spec with Hidden in place of what may be secret: the values of pool.env and of variables in
// pool.run_args, sessions.url, and in commands, the image, paths and the params of warm-ups what redact.Text finds:
// what a name or a URL marks as a password, a token or a key. What nothing marks stays.
func (s Spec) WithoutSecrets() Spec {
	if s.Pool.Env != nil {
		env := make(map[string]string, len(s.Pool.Env))
		for name := range s.Pool.Env {
			env[name] = Hidden
		}
		s.Pool.Env = env
	}
	if s.Sessions.URL != "" {
		s.Sessions.URL = Hidden
	}
	s.Pool.Command, s.Pool.RunArgs = hideArguments(s.Pool.Command), hideArguments(hideVariables(s.Pool.RunArgs))
	s.Pool.Image = redact.Text(s.Pool.Image)
	s.Health.Command, s.Health.Path = hideArguments(s.Health.Command), redact.Text(s.Health.Path)
	s.Start.Warmup = hideParams(s.Start.Warmup)
	return s
}

// ChangesWithoutSecrets is Changes with Hidden in place of what may be secret. A change of a secret alone is listed,
// too.
func ChangesWithoutSecrets(from, to Spec) []Change {
	changes := Changes(from, to)
	a, b := treeOf(from.WithoutSecrets()), treeOf(to.WithoutSecrets())
	for i := range changes {
		c := &changes[i]
		if k, found := keyByName[c.Key]; found {
			c.From, c.To = tomlValue(a[k.section][k.name]), tomlValue(b[k.section][k.name])
			continue
		}
		if !strings.HasPrefix(c.Key, "pool.env.") {
			continue // the sources of variables
		}
		for _, value := range []*string{&c.From, &c.To} {
			if *value != "" && *value != `""` {
				*value = Hidden
			}
		}
	}
	return changes
}

// hideArguments hides what the arguments of a program mark as secret, such as the one after --password.
func hideArguments(arguments []string) []string {
	hidden := slices.Clone(arguments)
	for i, argument := range hidden {
		if i > 0 && strings.HasPrefix(arguments[i-1], "-") && redact.NamesSecret(arguments[i-1]) &&
			!strings.HasPrefix(argument, "-") {
			hidden[i] = Hidden
		} else {
			hidden[i] = redact.Text(argument)
		}
	}
	return hidden
}

// hideVariables hides the values of the variables that arguments of podman run set.
func hideVariables(arguments []string) []string {
	hidden := slices.Clone(arguments)
	for i, argument := range hidden {
		flag, variable := "", ""
		switch {
		case i > 0 && (arguments[i-1] == "-e" || arguments[i-1] == "--env"):
			variable = argument
		case strings.HasPrefix(argument, "--env="):
			flag, variable = "--env=", argument[len("--env="):]
		case strings.HasPrefix(argument, "-e") && !strings.HasPrefix(argument, "--"):
			flag, variable = "-e", argument[len("-e"):]
		}
		if name, _, set := strings.Cut(variable, "="); set {
			hidden[i] = flag + name + "=" + Hidden
		}
	}
	return hidden
}

// hideParams hides what the params of calls mark as secret.
func hideParams(calls []Warmup) []Warmup {
	hidden := slices.Clone(calls)
	for i := range hidden {
		var params any
		decoder := json.NewDecoder(bytes.NewReader(hidden[i].Params))
		decoder.UseNumber()
		if decoder.Decode(&params) != nil {
			continue // there are none
		}
		if encoded, err := json.Marshal(hideValue(params)); err == nil {
			hidden[i].Params = encoded
		}
	}
	return hidden
}

// hideValue hides what a value of JSON marks as secret.
func hideValue(value any) any {
	switch value := value.(type) {
	case string:
		return redact.Text(value)
	case []any:
		for i := range value {
			value[i] = hideValue(value[i])
		}
	case map[string]any:
		for name := range value {
			if redact.NamesSecret(name) && value[name] != nil && value[name] != "" {
				value[name] = Hidden
			} else {
				value[name] = hideValue(value[name])
			}
		}
	}
	return value
}
