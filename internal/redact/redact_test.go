package redact

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsInURLsAreHidden(t *testing.T) {
	for text, want := range map[string]string{
		"redis://:s3cret@host:6379/0":              "redis://:(hidden)@host:6379/0",
		"redis://me:s3cret@host/0":                 "redis://me:(hidden)@host/0",
		"redis://s3cret@host":                      "redis://(hidden)@host",
		"https://s3cret:@host/x":                   "https://(hidden)@host/x",
		"https://s3cret-s3cret-s3cret-s3cret:x@h":  "https://(hidden)@h",
		"https://:@host":                           "https://(hidden)@host",
		"postgres://me:s3c@s3cret@db/x":            "postgres://me:(hidden)@db/x",
		"postgres://me:s3c/ret@db/x":               "postgres://me:(hidden)@db/x",
		"redis://:s3 cret@db and more":             "redis://:(hidden)@db and more",
		`parse "redis://me:s3\"cret@db": no URL`:   `parse "redis://me:(hidden)@db": no URL`,
		"redis://:s3c'ret@db":                      "redis://:(hidden)@db",
		"redis://:s3cret@a:1,redis://s3cret@b:2":   "redis://:(hidden)@a:1,redis://(hidden)@b:2",
		`parse "redis://s3cret@:x": no port`:       `parse "redis://(hidden)@:x": no port`,
		"sh -c 'curl https://s3cret@h/x -o y@z'":   "sh -c 'curl https://(hidden)@h/x -o y@z'",
		"https://h/hook?token=s3cret&page=2#end":   "https://h/hook?token=(hidden)&page=2#end",
		"https://h/hook?a=1&Access%5FToken=s3cret": "https://h/hook?a=1&Access%5FToken=(hidden)",
		"/healthz?key=s3cret&sig=s3%20cret":        "/healthz?key=(hidden)&sig=(hidden)",
		`Post "https://h/?code=s3cret": EOF`:       `Post "https://h/?code=(hidden)": EOF`,
		"https://s3cret@h/?x-amz-signature=s3cret": "https://(hidden)@h/?x-amz-signature=(hidden)",
		"https://h/#access_token=s3cret":           "https://h/#access_token=(hidden)",
	} {
		for name, hide := range map[string]func(string) string{"URLs": URLs, "Text": Text} {
			require.Equal(t, want, hide(text), "%s of %s", name, text)
			require.Equal(t, want, hide(want), "what is hidden stays as it is: %s", text)
		}
	}
}

func TestSecretsInArgumentsAreHidden(t *testing.T) {
	for text, want := range map[string]string{
		"DB_PASSWORD=s3cret run --api-key='s3 ret'": "DB_PASSWORD=(hidden) run --api-key=(hidden)",
		"-H Authorization: Bearer s3cret":           "-H Authorization: (hidden)",
	} {
		require.Equal(t, want, Text(text), text)
		require.Equal(t, want, Text(want), text)
		require.Equal(t, text, URLs(text), "a sentence may advise the like")
	}
}

func TestATextWithoutSecretsStaysAsItIs(t *testing.T) {
	for _, text := range []string{
		"", "://", "a://", "http://@host/", "http://host:80/a@b?c=d@e", "http://host:80", "http://[::1]:80/x",
		"registry.example.com/image@sha256:0123", "me@example.com",
		"http://host:port, not redis://h:1; ask me@example.com", "http://host:port\nme@example.com",
		"http://[::1]:80/a@b, me@example.com",
		"exit code=3", "key=value", "https://h/?page=2&monkey=3&tokens=4&decode=5", "--token-file /run/token",
		"tcp://127.0.0.1:6379 and unix:/run/x@y",
	} {
		require.Equal(t, text, Text(text))
		require.Equal(t, text, URLs(text))
	}
}

// FuzzUserInfoIsHidden checks that no user info that net/url finds is left, whatever is around it.
func FuzzUserInfoIsHidden(f *testing.F) {
	f.Add("me", "s3cret", "host/path?x=1")
	f.Add("", "a:b@c/d", "host")
	f.Add("token", "", "[::1]:80/@")
	f.Fuzz(func(t *testing.T, user, password, rest string) {
		u, err := url.Parse("redis://h/" + rest)
		if err != nil {
			return
		}
		u.User = url.UserPassword("u"+user, "s3cret"+password)
		text := URLs("before " + u.String() + " after")
		_, after, _ := strings.Cut(text, "://")
		info, _, _ := strings.Cut(after, "@")
		require.NotContains(t, info, "s3cret")
		u.User = url.User("s3cret" + user)
		_, after, _ = strings.Cut(URLs(u.String()), "://")
		require.True(t, strings.HasPrefix(after, Mark+"@h/"), after)
	})
}

func TestAnErrorLeadsToNoTextWithTheSecret(t *testing.T) {
	require.NoError(t, Error(nil))
	plain := errors.New("no route to host")
	require.Same(t, plain, Error(plain))
	_, cause := url.Parse(fmt.Sprintf("redis://%s@host:port", "s3cret"))
	require.ErrorContains(t, cause, "s3cret")
	err := Error(fmt.Errorf("open: %w, %w", cause, fs.ErrNotExist))
	require.NotContains(t, err.Error(), "s3cret")
	require.Contains(t, err.Error(), `parse "redis://(hidden)@host:port"`)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, is := errors.AsType[*url.Error](err)
	require.True(t, is)
	for e := err; e != nil; e = errors.Unwrap(e) { // a failure in a history has the texts of the chain
		require.NotContains(t, e.Error(), "s3cret")
	}
}
