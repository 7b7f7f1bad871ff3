package spec

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rule says what one key may hold. There is one for each key that has more to say than its form.
type rule struct {
	key     string
	allowed string
	// check returns where below the key, and why, the value breaks the rule; no problem means that it holds.
	check func(value any) (at, problem string)
}

const (
	maxWorkers = 1000
	maxCount   = 1_000_000_000
)

var (
	nameForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	umaskForm = regexp.MustCompile(`^0?[0-7]{3}$`)
)

const nameAllowed = "1 to 63 characters of a-z, 0-9, _ and -, the first a letter or digit"

// rules are checked in this order, which is the file's.
var rules = []rule{
	{"pool.name", nameAllowed, func(v any) (string, string) {
		switch name := v.(string); {
		case name == "":
			return "", "is missing"
		case !nameForm.MatchString(name):
			return "", fmt.Sprintf("%s is not a pool's name", quoteValue(name))
		}
		return "", ""
	}},
	{"pool.size", "a whole number from 1 to 1000; to have no workers, stop the pool", intBetween(1, maxWorkers)},
	{"pool.command", `the program and its arguments, such as ["python3", "worker.py"]`, func(v any) (string, string) {
		if len(v.([]string)) == 0 {
			return "", "is missing"
		}
		return commandProblem(v)
	}},
	oneOf("pool.protocol", ProtocolFrames, ProtocolJSONRPC, ProtocolNone),
	oneOf("pool.framing", FramingLine, FramingContentLength, FramingPacket4),
	{"pool.placement", nameAllowed, holds(nameForm.MatchString)},
	integerRange("pool.max_inflight", 1, 1000),
	{"pool.env", `texts without NUL, such as LANG = "C"; names without = that do not begin with TEMPOOL_`, func(v any) (string, string) {
		env := v.(map[string]string)
		for _, name := range sortedNames(env) {
			if problem := variableProblem(name); problem != "" {
				return "." + quoteKey(name), problem
			}
			if strings.ContainsRune(env[name], 0) {
				return "." + quoteKey(name), "holds a NUL character"
			}
		}
		return "", ""
	}},
	{"pool.env_from", "names without = that do not begin with TEMPOOL_", func(v any) (string, string) {
		for i, name := range v.([]string) {
			if problem := variableProblem(name); problem != "" {
				return fmt.Sprintf("[%d]", i), problem
			}
		}
		return "", ""
	}},
	textWithoutNUL("pool.dir"),
	textWithoutNUL("pool.user"),
	textWithoutNUL("pool.group"),
	{"pool.umask", `three octal digits such as "022", or "" to leave it alone`, holds(func(umask string) bool { return umask == "" || umaskForm.MatchString(umask) })},
	positiveDuration("pool.stop_grace"),
	sizeRange("pool.max_message", 1<<10, 1<<30),

	positiveDuration("start.timeout"),
	integerRange("start.concurrency", 0, maxWorkers),
	numberRange("start.rate_per_second", 0, 10_000),
	{"start.warmup", "[[start.warmup]] tables, each with a method (text), params (any value; {} without) and notification (true or false)", func(v any) (string, string) {
		for i, w := range v.([]Warmup) {
			if w.Method == "" || strings.ContainsRune(w.Method, 0) {
				return fmt.Sprintf("[%d].method", i), "is missing"
			}
			if len(w.Params) > 0 && !json.Valid(w.Params) {
				return fmt.Sprintf("[%d].params", i), "is not JSON"
			}
		}
		return "", ""
	}},

	oneOf("health.kind", HealthRPC, HealthHTTP, HealthTCP, HealthExec),
	positiveDuration("health.interval"),
	positiveDuration("health.checkpoint"),
	positiveDuration("health.timeout"),
	integerRange("health.max_failures", 1, 1000),
	{"health.method", "the name of a method", holds(func(method string) bool { return method != "" && !strings.ContainsRune(method, 0) })},
	{"health.path", `a path that begins with "/", such as "/healthz?full=1"`, holds(func(path string) bool {
		_, err := url.ParseRequestURI(path)
		return err == nil && strings.HasPrefix(path, "/")
	})},
	integerRange("health.port", 0, 65535),
	{"health.command", `the program and its arguments, such as ["test", "-e", "ok"]`, commandProblem},
	bands("health.memory_bands"),
	bands("health.cpu_bands"),
	bands("health.calls_bands"),

	integerRange("rotation.max_requests", 0, maxCount),
	numberRange("rotation.jitter", 0, 0.9),
	sizeRange("rotation.max_memory", 0, 1<<50),
	optionalDuration("rotation.max_uptime"),
	positiveDuration("rotation.drain_timeout"),
	integerRange("rotation.max_unavailable", 1, maxWorkers),

	integerRange("recovery.max_consecutive_failures", 1, maxCount),
	positiveDuration("recovery.backoff_initial"),
	positiveDuration("recovery.backoff_max"),
	numberRange("recovery.backoff_multiplier", 1, 100),
	positiveDuration("recovery.healthy_reset"),

	positiveDuration("lease.ttl"),
	positiveDuration("lease.max_ttl"),
	positiveDuration("lease.idle_return"),
	oneOf("lease.on_expiry", ExpiryReplace, ExpiryReset),

	integerRange("queue.size", 1, 1_000_000),
	positiveDuration("queue.timeout"),

	sizeRange("limits.memory", 0, 1<<50),
	numberRange("limits.cpu", 0, 4096),
	integerRange("limits.open_files", 0, maxCount),
	integerRange("limits.processes", 0, maxCount),
	optionalDuration("limits.cpu_time"),
	{"limits.cpu_affinity", "cores, counted from 0", func(v any) (string, string) {
		for i, core := range v.([]int) {
			if core < 0 || core > 4095 {
				return fmt.Sprintf("[%d]", i), fmt.Sprintf("%d is not a core", core)
			}
		}
		return "", ""
	}},
	integerRange("limits.cpu_affinity_each", 0, 4096),
	integerRange("limits.nice", -20, 19),
	integerRange("limits.oom_score_adj", -1000, 1000),
	integerRange("limits.calls_per_minute", 0, maxCount),

	positiveDuration("watch.debounce"),
	oneOf("watch.mode", WatchRolling, WatchAll),

	oneOf("sessions.store", StoreMemory, StoreEmbedded, StoreRedis),
	rule{"sessions.url", redisURLAllowed, func(v any) (string, string) { return "", redisProblem(v.(string)) }},
	positiveDuration("sessions.ttl"),
	positiveDuration("sessions.anonymous_ttl"),
	oneOf("sessions.sync", SyncAlways, SyncInterval),
	integerRange("sessions.max", 1, maxCount),
	oneOf("sessions.on_full", OnFullRefuse, OnFullEvict),
	positiveDuration("sessions.affinity_ttl"),

	oneOf("resources.allocation", AllocationNone, AllocationEqual, AllocationWeighted, AllocationAdaptive),
	sizeRange("resources.memory_budget", 0, 1<<50),
	numberRange("resources.cpu_budget", 0, 4096),
	positiveDuration("resources.rebalance"),

	integerRange("prediction.window", 3, 1000),
	positiveDuration("prediction.horizon"),

	oneOf("policy.mode", PolicyEnforce, PolicyObserve),
}

var ruleByKey = func() map[string]rule {
	byKey := make(map[string]rule, len(rules))
	for _, r := range rules {
		byKey[r.key] = r
	}
	return byKey
}()

// allowedText is what an error about the key says may stand there.
func allowedText(k keyInfo) string {
	if r, found := ruleByKey[k.key()]; found {
		return r.allowed
	}
	return k.form.allowed()
}

// checkRules returns the error of the first rule that s breaks.
func checkRules(s *Spec) *Error {
	for _, r := range rules {
		if at, problem := r.check(keyByName[r.key].value(s).Interface()); problem != "" {
			return &Error{Key: r.key + at, Problem: problem, Allowed: r.allowed}
		}
	}
	return nil
}

// holds makes a check of a question about the value.
func holds[T any](holds func(T) bool) func(any) (string, string) {
	return func(v any) (string, string) {
		if holds(v.(T)) {
			return "", ""
		}
		return "", quoteValue(v) + " is not allowed"
	}
}

func intBetween(low, high int) func(any) (string, string) {
	return holds(func(n int) bool { return low <= n && n <= high })
}

func integerRange(key string, low, high int) rule {
	return rule{key, fmt.Sprintf("a whole number from %d to %d", low, high), intBetween(low, high)}
}

func numberRange(key string, low, high float64) rule {
	allowed := fmt.Sprintf("a number from %v to %v", low, high)
	return rule{key, allowed, holds(func(n float64) bool { return low <= n && n <= high })}
}

// bands are empty, or four values that rise from above 0.
func bands(key string) rule {
	return rule{key, "four rising numbers above 0, such as [20, 50, 80, 95], or [] to leave it ungraded", func(v any) (string, string) {
		values := v.([]float64)
		if len(values) != 0 && len(values) != 4 {
			return "", fmt.Sprintf("has %d numbers", len(values))
		}
		last := 0.0
		for i, value := range values {
			if !(value > last) || value > maxCount {
				return fmt.Sprintf("[%d]", i), fmt.Sprintf("%v does not rise", value)
			}
			last = value
		}
		return "", ""
	}}
}

// minDuration keeps timers from spinning; what is meant to be "at once" can be said with it.
const minDuration = Duration(time.Millisecond)

func positiveDuration(key string) rule {
	return rule{key, durationAllowed + ", at least " + minDuration.String(), holds(func(d Duration) bool { return d >= minDuration })}
}

func optionalDuration(key string) rule {
	allowed := durationAllowed + `, at least ` + minDuration.String() + `; or "" for none`
	return rule{key, allowed, holds(func(d Duration) bool { return d == 0 || d >= minDuration })}
}

func sizeRange(key string, low, high Bytes) rule {
	allowed := fmt.Sprintf("%s from %s to %s", bytesAllowed, low, high)
	if low == 0 {
		allowed = fmt.Sprintf(`%s up to %s; or "" for none`, bytesAllowed, high)
	}
	return rule{key, allowed, holds(func(b Bytes) bool { return low <= b && b <= high })}
}

func oneOf(key string, words ...string) rule {
	quotedWords := make([]string, len(words))
	for i, word := range words {
		quotedWords[i] = strconv.Quote(word)
	}
	return rule{key, orList(quotedWords), holds(func(word string) bool {
		return slices.Contains(words, word)
	})}
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func textWithoutNUL(key string) rule {
	return rule{key, "text without NUL", holds(func(s string) bool { return !strings.ContainsRune(s, 0) })}
}

func commandProblem(v any) (at, problem string) {
	for i, word := range v.([]string) {
		if i == 0 && word == "" {
			return "[0]", "is empty"
		}
		if strings.ContainsRune(word, 0) {
			return fmt.Sprintf("[%d]", i), "holds a NUL character"
		}
	}
	return "", ""
}

func variableProblem(name string) string {
	switch {
	case name == "":
		return "has no name"
	case strings.ContainsAny(name, "=\x00"):
		return quoteValue(name) + " is not the name of a variable"
	case strings.HasPrefix(name, "TEMPOOL_"):
		return quoteValue(name) + " is set by Tempool itself"
	}
	return ""
}

// quoteValue is a value as an error quotes it, in the file's own notation.
func quoteValue(v any) string {
	switch v.(type) {
	case string, Duration, Bytes:
		return strconv.Quote(fmt.Sprint(v))
	}
	return fmt.Sprint(v)
}

// sameValue holds for equal values; a list or table without elements is equal to none.
func sameValue(a, b reflect.Value) bool {
	if (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
