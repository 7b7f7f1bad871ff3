package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// rule restricts the value of a key.
type rule struct {
	allowed string
	// check returns where below the key, and why, a value violates the rule. No problem means that it does not.
	check func(value any) (at, problem string)
}

const (
	maxWorkers = 1000
	maxCount   = 1_000_000_000
	maxSize    = Bytes(1 << 50)
)

var (
	nameForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	umaskForm = regexp.MustCompile(`^0?[0-7]{3}$`)

	optionalSize = fmt.Sprintf(`%s up to %s; or "" for none`, bytesAllowed, maxSize)
)

const nameAllowed = `1 to 63 characters of a-z, 0-9, _ and -, the first a letter or digit, such as "web-1"`

// ValidLabel reports whether a pool can have label as its placement.
func ValidLabel(label string) bool { return nameForm.MatchString(label) }

// ownRules are the rules of the keys that need more than ruleOf makes of a tag.
var ownRules = map[string]rule{
	"pool.name": {nameAllowed, func(v any) (string, string) {
		switch name := v.(string); {
		case name == "":
			return "", "is missing"
		case !nameForm.MatchString(name):
			return "", fmt.Sprintf("%s is not a valid pool name", quoteValue(name))
		case name == "host":
			return "", `"host" is reserved for the workflows of hosts`
		}
		return "", ""
	}},
	"pool.size":     {"a whole number from 1 to 1000; to have no workers, stop the pool", between(1, maxWorkers)},
	"pool.command":  {commandAllowed, commandProblem},
	"pool.function": {functionAllowed, holds(func(name string) bool { return name == "" || nameForm.MatchString(name) })},
	"pool.image": {imageAllowed, holds(func(image string) bool {
		return !strings.HasPrefix(image, "-") && !strings.ContainsAny(image, " \t\r\n\x00")
	})},
	"pool.run_args":  {"strings without NUL characters", commandProblem},
	"pool.placement": {nameAllowed, holds(ValidLabel)},
	"pool.env": {`strings without NUL, such as LANG = "C"; names without = that do not begin with TEMPOOL_`,
		eachNamed(func(name, value string) string {
			return cmp.Or(variableProblem(name), problemIf(strings.ContainsRune(value, 0), "contains a NUL character"))
		})},
	"pool.env_from": {"names without = that do not begin with TEMPOOL_", each(variableProblem)},
	"pool.umask": {`three octal digits such as "022", or "" for the umask of the agent`,
		holds(func(umask string) bool { return umask == "" || umaskForm.MatchString(umask) })},
	"start.warmup": {"[[start.warmup]] tables, each with a method (a string), params (any value; {} without) and " +
		"notification (true or false)", func(v any) (string, string) {
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
	"health.method": {"the name of a method",
		holds(func(method string) bool { return method != "" && !strings.ContainsRune(method, 0) })},
	"health.path": {`a path that begins with "/", such as "/healthz?full=1"`, holds(func(path string) bool {
		_, err := url.ParseRequestURI(path)
		return err == nil && strings.HasPrefix(path, "/")
	})},
	"health.command":      {`the program and its arguments, such as ["test", "-e", "ok"]`, commandProblem},
	"health.memory_bands": {bandsAllowed + `; or "auto"`, func(v any) (string, string) { return bandsProblem(v.(Bands)) }},
	"rotation.max_memory": {optionalSize + `; or "auto"`,
		holds(func(b Bytes) bool { return b == Auto || 0 <= b && b <= maxSize })},
	"scale.max": {"a whole number from 0 to 1000; 0 keeps pool.size workers", between(0, maxWorkers)},
	"limits.cpu_affinity": {"a list of core numbers from 0 to 4095, such as [0, 1]", each(func(core int) string {
		return problemIf(core < 0 || core > 4095, fmt.Sprintf("%d is not a core number", core))
	})},
	"sandbox.read":   {absolutePathsAllowed, each(absolutePathProblem)},
	"sandbox.write":  {absolutePathsAllowed, each(absolutePathProblem)},
	"isolation.env":  sources(`sources of variables: "key", "header:X-…" or "file:/run/secrets/{key}"`),
	"watch.paths":    {`a list of strings such as ["a", "b"]`, anything},
	"watch.ignore":   {`a list of strings such as ["a", "b"]`, anything},
	"mcp.tools":      {toolsAllowed, each(globProblem)},
	"mcp.tools_deny": {toolsAllowed, each(globProblem)},
	"mcp.origins": {`origins of web pages, such as ["https://chat.example", "http://localhost:6274"]`,
		each(originProblem)},
	"mcp.env":      sources(`sources of variables: "header:X-…" or "file:/run/secrets/{principal}"`),
	"sessions.url": {redisURLAllowed, func(v any) (string, string) { return "", redisProblem(v.(string)) }},
}

// ruleOf is the rule of a key: its own one, else what the form and the tag rule of its field say. The tag has the
// bounds of a number or a size, such as 1..1000, or 0.. up to maxCount; or the words that a string may be, such as
// run|freeze. A duration or a size that may be 0 is optional, and a list of numbers has bands.
func ruleOf(key string, field reflect.StructField) rule {
	if own, found := ownRules[key]; found {
		return own
	}
	tag := field.Tag.Get("rule")
	switch reflect.Zero(field.Type).Interface().(type) {
	case bool:
		if tag == "" {
			return rule{"true or false", anything}
		}
	case []float64:
		if tag == "bands" {
			return rule{bandsAllowed, func(v any) (string, string) { return bandsProblem(v.([]float64)) }}
		}
	case int:
		if low, high, ok := bounds[int](tag); ok {
			return rule{fmt.Sprintf("a whole number from %d to %d", low, high), between(low, high)}
		}
	case float64:
		if low, high, ok := bounds[float64](tag); ok {
			return rule{fmt.Sprintf("a number from %v to %v", low, high), between(low, high)}
		}
	case Bytes:
		if tag == "optional" {
			return rule{optionalSize, between(0, maxSize)}
		}
		if low, high, ok := bounds[Bytes](tag); ok {
			return rule{fmt.Sprintf("%s from %s to %s", bytesAllowed, low, high), between(low, high)}
		}
	case Duration:
		switch tag {
		case "":
			return rule{durationRange, between(minDuration, maxDuration)}
		case "optional":
			return rule{durationRange + `; or "" for none`,
				holds(func(d Duration) bool { return d == 0 || minDuration <= d && d <= maxDuration })}
		}
	case string:
		if tag != "" {
			return oneOf(strings.Split(tag, "|"))
		}
		return rule{"a string without NUL characters", holds(func(s string) bool { return !strings.ContainsRune(s, 0) })}
	}
	panic(fmt.Sprintf("spec: %s needs a rule of its own: there is no rule %q of a %s", key, tag, field.Type))
}

func bounds[T cmp.Ordered](tag string) (low, high T, ok bool) {
	from, to, ok := strings.Cut(tag, "..")
	if ok {
		assignText(from, &low)
		assignText(cmp.Or(to, strconv.Itoa(maxCount)), &high)
	}
	return low, high, ok
}

var headerForm = regexp.MustCompile(`^[Xx]-[A-Za-z0-9-]{1,100}$`)

// sources is the rule of a table of variables and their sources.
func sources(allowed string) rule {
	return rule{allowed, eachNamed(func(name, source string) string {
		return cmp.Or(variableProblem(name), sourceProblem(source))
	})}
}

// sourceProblem says what is wrong with a source of isolation.env. Only headers with X- pass to workers.
func sourceProblem(source string) string {
	header, isHeader := strings.CutPrefix(source, EnvHeader)
	file, isFile := strings.CutPrefix(source, EnvFile)
	switch {
	case source == EnvKey, isHeader && headerForm.MatchString(header),
		isFile && strings.HasPrefix(file, "/") && !strings.ContainsRune(file, 0):
		return ""
	case isHeader:
		return fmt.Sprintf("%s is not the name of a header that begins with X-", quoteValue(header))
	}
	return fmt.Sprintf("%s is no source", quoteValue(source))
}

const toolsAllowed = `globs of names of tools, such as ["read_*", "search"]`

func globProblem(glob string) string {
	_, err := path.Match(glob, "")
	return problemIf(err != nil || glob == "", quoteValue(glob)+" is not a glob")
}

func originProblem(origin string) string {
	u, err := url.Parse(origin)
	return problemIf(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" ||
		origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin),
		quoteValue(origin)+" is not an origin in lower case without a path")
}

const absolutePathsAllowed = `absolute paths without NUL, such as ["/usr", "/srv/models"]`

func absolutePathProblem(file string) string {
	return problemIf(!strings.HasPrefix(file, "/") || strings.ContainsRune(file, 0),
		quoteValue(file)+" is not an absolute path")
}
