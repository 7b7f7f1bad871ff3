package spec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each of these is as large as a file may be; work that grows with the square of that would take minutes.
func TestHostileFilesAreParsedInBoundedTime(t *testing.T) {
	numbered := func(format string) string {
		var text strings.Builder
		for i := 0; text.Len() < maxFile-len(minimal)-64; i++ {
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	for name, file := range map[string]string{
		"variables":     minimal + "[pool.env]\n" + numbered("A%d=''\n"),
		"bad variables": minimal + "[pool.env]\n" + numbered("A%d=''\n") + "B=1",
		"warm-ups":      minimal + numbered("[[start.warmup]]\nmethod='%d'\n"),
		"bad warm-ups":  minimal + numbered("[[start.warmup]]\nmethod='%d'\n") + "x=1",
		"deep lists": minimal + "[[start.warmup]]\nmethod='a'\nparams=" +
			strings.Repeat("[", 8000) + strings.Repeat("]", 8000),
		"deeper lists": minimal + "[[start.warmup]]\nmethod='a'\nparams=" + strings.Repeat("[", 25_000),
		"deep tables": minimal + "[[start.warmup]]\nmethod='a'\nparams=" + strings.Repeat("{a=", 8000) + "1" +
			strings.Repeat("}", 8000),
		"deep keys":    minimal + "[[start.warmup]]\nmethod='a'\nparams." + strings.Repeat("a.", 25_000) + "a=1",
		"deep headers": minimal + "[" + strings.Repeat("a.", 25_000) + "a]",
		"a long key":   minimal + strings.Repeat("a", 50_000) + "=1",
		"lines":        strings.Repeat("\n", maxFile),
	} {
		start := time.Now()
		_, err := Parse([]byte(file), "hostile.toml")
		tolerable := err == nil || strings.Contains(err.Error(), "the spec is too large")
		require.Equal(t, name == "variables" || name == "warm-ups", tolerable, "%s: %v", name, err)
		require.Less(t, time.Since(start), time.Minute, name)
	}
}
