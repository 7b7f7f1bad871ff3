package redis

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tempool/tempool/api"
)

// Timeouts of one exchange with the server; operationTimeout covers all exchanges of an operation.
const (
	dialTimeout      = 2 * time.Second
	replyTimeout     = 3 * time.Second
	operationTimeout = 5 * time.Second
)

func init() { redis.SetLogger(discardLogger{}) }

// discardLogger drops the client library's log lines; the operation that fails returns the error.
type discardLogger struct{}

func (discardLogger) Printf(context.Context, string, ...any) {}

// connect makes a client, which connects on first use. It does not retry commands: only the client of a cluster may
// send one twice.
func connect(address string) (redis.UniversalClient, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, err
	}
	notify := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if query.Has("addr") {
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, err
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, replyTimeout, replyTimeout, replyTimeout
		o.MaxRetries, o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig = -1, true, true, notify
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, replyTimeout, replyTimeout, replyTimeout
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig =
		-1, 1, true, true, notify
	return redis.NewClient(o), nil
}

// passwordVariable finds the environment variable that a URL names instead of a password. A password that begins with $
// is written as %24.
var passwordVariable = regexp.MustCompile(`^(rediss?://[^:@/]*:)\$([A-Za-z_][A-Za-z0-9_]*)(@.*)$`)

// withPassword returns the URL with the password that it names. It fails with CodeInvalid if this program does not have
// the variable.
func withPassword(address string) (string, error) {
	found := passwordVariable.FindStringSubmatch(address)
	if found == nil {
		return address, nil
	}
	password, set := os.LookupEnv(found[2])
	if !set {
		return "", api.Errorf(api.CodeInvalid,
			"sessions.url names the environment variable %s for its password, which this program does not have; start the "+
				"agent with it", found[2])
	}
	_, escaped, _ := strings.Cut(url.UserPassword("", password).String(), ":")
	return found[1] + escaped + found[3], nil
}
