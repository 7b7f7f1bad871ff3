package spec

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const redisURLAllowed = `redis://[user:password@]host:port/database, rediss:// for TLS, and for a cluster ?addr=host:port in the place of the database`

// CheckRedisURL refuses what sessions.url could not be, by a sentence that repeats nothing of it.
func CheckRedisURL(address string) error {
	problem := redisProblem(address)
	if address == "" {
		problem = "is missing"
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("the address of the Redis server %s; write %s", problem, redisURLAllowed)
}

// redisProblem says what is wrong with a value of sessions.url; empty is right. It repeats nothing of the value, which may hold a password.
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
		return "begins with neither redis:// nor rediss://"
	case parsed.Hostname() == "":
		return "names no host"
	case len(query) > 0 || parsed.Fragment != "":
		return "says more than where the server is"
	case len(nodes) > 0 && database != "":
		return "names a database of a cluster, which has one only"
	}
	for _, node := range nodes {
		if host, port, found := strings.Cut(node, ":"); !found || host == "" || port == "" {
			return "names a node of a cluster without host:port"
		}
	}
	if _, err := strconv.ParseUint(database, 10, 16); database != "" && err != nil {
		return "names a database that is not a number"
	}
	return ""
}
