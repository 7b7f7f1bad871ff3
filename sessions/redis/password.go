package redis

import (
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/tempool/tempool/api"
)

// passwordVariable finds the environment variable that a URL names instead of a password. A password that begins with $ is written as %24.
var passwordVariable = regexp.MustCompile(`^(rediss?://[^:@/]*:)\$([A-Za-z_][A-Za-z0-9_]*)(@.*)$`)

// withPassword returns the URL with the password that it names. It fails with CodeInvalid if this program does not have the variable.
func withPassword(address string) (string, error) {
	found := passwordVariable.FindStringSubmatch(address)
	if found == nil {
		return address, nil
	}
	password, set := os.LookupEnv(found[2])
	if !set {
		return "", api.Errorf(api.CodeInvalid, "sessions.url names the environment variable %s for its password, which this program does not have; start the agent with it", found[2])
	}
	_, escaped, _ := strings.Cut(url.UserPassword("", password).String(), ":")
	return found[1] + escaped + found[3], nil
}
