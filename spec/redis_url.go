package spec

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const redisURLAllowed = `a URL such as redis://localhost:6379/0, where user:password@ may precede the host; ` +
	`rediss:// for TLS; for a cluster, ?addr=host:port instead of the database`

// CheckRedisURL returns an error for a value that sessions.url does not allow. The error does not repeat the value,
// which may hold a password.
func CheckRedisURL(address string) error {
	problem := redisProblem(address)
	if address == "" {
		problem = "is missing"
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("the Redis URL %s; allowed: %s", problem, redisURLAllowed)
}

// redisProblem returns what is wrong with a value of sessions.url; "" if nothing is. It does not repeat the value.
func redisProblem(address string) string {
	if address == "" {
		return ""
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return "is not a URL"
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return "is not a URL"
	}
	nodes := query["addr"]
	delete(query, "addr")
	database := strings.TrimPrefix(parsed.Path, "/")
	switch {
	case parsed.Scheme != "redis" && parsed.Scheme != "rediss":
		return "does not begin with redis:// or rediss://"
	case parsed.Hostname() == "":
		return "has no host"
	case len(query) > 0 || parsed.Fragment != "":
		return "has a query parameter other than addr, or a fragment"
	case len(nodes) > 0 && database != "":
		return "has both a database and addr; a cluster has only one database"
	}
	for _, node := range nodes {
		if host, port, found := strings.Cut(node, ":"); !found || host == "" || port == "" {
			return "has an addr that is not host:port"
		}
	}
	if _, err := strconv.ParseUint(database, 10, 16); database != "" && err != nil {
		return "has a database that is not a number from 0 to 65535"
	}
	return ""
}
