package spec

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Hidden stands for a value that may be a secret.
const Hidden = "(hidden)"

// WithoutSecrets is the spec with Hidden in place of what may be secret: the values of pool.env and of variables in pool.run_args, sessions.url, and in
// commands, paths and the params of warm-ups what a name or a URL marks as a password, a token or a key. What no name marks stays.
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
	s.Health.Command, s.Health.Path = hideArguments(s.Health.Command), hideText(s.Health.Path)
	s.Start.Warmup = hideParams(s.Start.Warmup)
	return s
}

// ChangesWithoutSecrets is Changes with Hidden in place of what may be secret. A change of a secret alone is listed, too.
func ChangesWithoutSecrets(from, to Spec) []Change {
	changes := Changes(from, to)
	a, b := treeOf(from.WithoutSecrets()), treeOf(to.WithoutSecrets())
	for i := range changes {
		c := &changes[i]
		section, name, _ := strings.Cut(c.Key, ".")
		if variable := strings.HasPrefix(c.Key, "pool.env."); !variable {
			c.From, c.To = tomlValue(a[section][name]), tomlValue(b[section][name])
			continue
		}
		for _, value := range []*string{&c.From, &c.To} {
			if *value != "" && *value != `""` {
				*value = Hidden
			}
		}
	}
	return changes
}

var (
	// passwordInURL is the user info of a URL with a password.
	passwordInURL = regexp.MustCompile(`(://[^/@\s:]*:)[^/@\s]+@`)
	// assignment is NAME=VALUE in an argument, a query or a line of a shell.
	assignment = regexp.MustCompile(`([A-Za-z0-9_.-]+)=("[^"]*"|'[^']*'|[^\s"';&]+)`)
	// authorization is the value of that header.
	authorization = regexp.MustCompile(`(?i)(authorization:\s*)[^\s"']+(\s+[^\s"']+)?`)
)

// hideText hides what a text marks as secret.
func hideText(text string) string {
	text = passwordInURL.ReplaceAllString(text, "${1}"+Hidden+"@")
	text = authorization.ReplaceAllString(text, "${1}"+Hidden)
	return assignment.ReplaceAllStringFunc(text, func(found string) string {
		if name, _, _ := strings.Cut(found, "="); isSecret(name) {
			return name + "=" + Hidden
		}
		return found
	})
}

// hideArguments hides what the arguments of a program mark as secret, such as the one after --password.
func hideArguments(arguments []string) []string {
	hidden := slices.Clone(arguments)
	for i, argument := range hidden {
		if i > 0 && strings.HasPrefix(arguments[i-1], "-") && isSecret(arguments[i-1]) && !strings.HasPrefix(argument, "-") {
			hidden[i] = Hidden
		} else {
			hidden[i] = hideText(argument)
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
		return hideText(value)
	case []any:
		for i := range value {
			value[i] = hideValue(value[i])
		}
	case map[string]any:
		for name := range value {
			if isSecret(name) && value[name] != nil && value[name] != "" {
				value[name] = Hidden
			} else {
				value[name] = hideValue(value[name])
			}
		}
	}
	return value
}

// isSecret reports whether a name, of an option, a variable or a key, is that of a secret: its last word says so. --token-file names a file.
func isSecret(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if last == "key" && len(words) > 1 {
		last = words[len(words)-2] + last
	}
	return slices.ContainsFunc(secretNames, func(secret string) bool { return strings.HasSuffix(last, secret) })
}

var secretNames = []string{
	"password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "credentials", "authorization",
	"apikey", "accesskey", "secretkey", "privatekey", "authkey", "signingkey", "encryptionkey",
}
