// Package redact hides secrets in what people read: logs, errors, histories and shown specs. It is the one place that
// knows what a secret looks like.
package redact

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Mark stands for a value that may be a secret.
const Mark = "(hidden)"

// URLs hides the secrets of the URLs in a sentence: their user info, and the parameters of queries that a name marks as
// a password, a token or a key. Of user info it leaves a plain name before a password, as in redis://me:(hidden)@host:
// a name alone, a long one or one with an empty password may be a token. A malformed URL is hidden as far as its user
// info may extend.
func URLs(text string) string {
	return parameter.ReplaceAllStringFunc(hideUserInfo(text), func(found string) string {
		name, _, _ := strings.Cut(found[1:], "=")
		if decoded, err := url.QueryUnescape(name); err == nil &&
			(NamesSecret(decoded) || slices.Contains(secretParameters, strings.ToLower(decoded))) {
			return found[:1] + name + "=" + Mark
		}
		return found
	})
}

// Text hides what the argument of a program, or a line of a shell, marks as secret: what URLs hides, the values of what
// a name marks in NAME=VALUE, and the header Authorization. Sentences may have the like as advice. What nothing marks
// stays.
func Text(text string) string {
	text = authorization.ReplaceAllString(URLs(text), "${1}"+Mark)
	return assignment.ReplaceAllStringFunc(text, func(found string) string {
		if name, _, _ := strings.Cut(found, "="); NamesSecret(name) {
			return name + "=" + Mark
		}
		return found
	})
}

// Error returns an error whose text is that of err without the secrets of URLs. errors.Is and errors.As find what they
// find in err, but Unwrap leads to no text with a secret. It returns err itself if there is nothing to hide. A coded
// error is made of the result: errors.As would find the text of one in err.
func Error(err error) error {
	if err == nil || URLs(err.Error()) == err.Error() {
		return err
	}
	return redacted{err}
}

type redacted struct{ err error }

func (r redacted) Error() string        { return URLs(r.err.Error()) }
func (r redacted) Is(target error) bool { return errors.Is(r.err, target) }
func (r redacted) As(target any) bool   { return errors.As(r.err, target) }

// NamesSecret reports whether a name, of an option, a variable or a key, is that of a secret: its last word says so.
// --token-file names a file.
func NamesSecret(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name),
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if last == "key" && len(words) > 1 {
		last = words[len(words)-2] + last
	}
	return slices.ContainsFunc(secretNames, func(secret string) bool { return strings.HasSuffix(last, secret) })
}

var (
	secretNames = []string{
		"password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "credentials", "authorization",
		"apikey", "accesskey", "secretkey", "privatekey", "authkey", "signingkey", "encryptionkey",
	}
	// secretParameters are names of secrets in the queries of URLs only, where they are usual.
	secretParameters = []string{"key", "auth", "pass", "sig", "signature", "x-amz-signature", "jwt", "code"}

	// assignment is NAME=VALUE in an argument or a line of a shell.
	assignment = regexp.MustCompile(`([A-Za-z0-9_.-]+)=("[^"]*"|'[^']*'|[^\s"';&]+)`)
	// parameter is one of the query or the fragment of a URL or a path.
	parameter = regexp.MustCompile(`[?&#;][^\s=&#;?"'<>` + "`" + `]+=[^\s&#;"'<>` + "`" + `]+`)
	// authorization is the value of that header.
	authorization = regexp.MustCompile(`(?i)(authorization:\s*)[^\s"']+(\s+[^\s"']+)?`)
	// plainName is a user name that is too short for a token.
	plainName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,24}$`)
)

// hideUserInfo hides the user info of each URL in a text.
func hideUserInfo(text string) string {
	const separator = "://"
	before, rest, found := strings.Cut(text, separator)
	if !found {
		return text
	}
	var hidden strings.Builder
	for found {
		hidden.WriteString(before)
		hidden.WriteString(separator)
		if info := userInfo(rest); info != "" {
			rest = rest[len(info):]
			hidden.WriteString(hiddenInfo(info))
		}
		before, rest, found = strings.Cut(rest, separator)
	}
	hidden.WriteString(before)
	return hidden.String()
}

// userInfo is what is before the @ of a URL without its scheme, "" if there is nothing.
func userInfo(rest string) string {
	line, _, _ := strings.Cut(rest, "\n")
	line, _, _ = strings.Cut(line, "://") // the next URL
	if end := strings.IndexFunc(rest, endsURL); end >= 0 {
		rest = rest[:end]
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		return authority[:at]
	}
	host := authority
	if strings.HasPrefix(host, "[") { // an address of IPv6
		host = host[strings.LastIndexByte(host, ']')+1:]
	}
	_, port, _ := strings.Cut(host, ":")
	port = strings.Trim(port, "0123456789")
	if at := strings.LastIndexByte(rest, '@'); port != "" && at >= 0 { // a password with a slash that is not escaped
		return rest[:at]
	}
	if strings.Trim(port, ".,;:!)'") != "" { // one with a blank or a quote
		return line[:max(0, strings.IndexByte(line, '@'))]
	}
	return ""
}

// endsURL reports whether no URL has the character, not even in a password.
func endsURL(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"<>`", r) }

func hiddenInfo(info string) string {
	if user, password, _ := strings.Cut(info, ":"); password != "" && plainName.MatchString(user) {
		return user + ":" + Mark
	}
	return Mark
}
