package redis

import (
	"context"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Times that bound an exchange with the server, and all exchanges of an operation together.
const (
	dialTimeout      = 2 * time.Second
	replyTimeout     = 3 * time.Second
	operationTimeout = 5 * time.Second
)

func init() { redis.SetLogger(silent{}) }

// silent drops the client library's own log: whatever fails is told by the operation that failed.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// connect makes a client, which connects when it is used. A single server is told nothing twice.
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
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig = -1, 1, true, true, notify
	return redis.NewClient(o), nil
}
