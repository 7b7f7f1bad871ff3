package affinity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheBindingsOfAPoolAreListedInPages(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Bind("p", "gone", "p/0")
	now = now.Add(DefaultTTL)
	table.Bind("p", "b", "p/1")
	table.Bind("p", "a", "p/0")
	table.Bind("p", "c", "p/0")
	table.Bind("pp", "a", "pp/0")
	page, more := table.Bindings("p", "", 2)
	require.Equal(t, []Binding{{"a", "p/0"}, {"b", "p/1"}}, page)
	require.True(t, more)
	page, more = table.Bindings("p", "b", 2)
	require.Equal(t, []Binding{{"c", "p/0"}}, page)
	require.False(t, more)

	table.UnbindUnless("p", "a", "p/0")
	require.Equal(t, "p/0", table.Where("p", "a"))
	table.UnbindUnless("p", "a", "p/1")
	table.UnbindUnless("p", "b", "")
	page, _ = table.Bindings("p", "", 9)
	require.Equal(t, []Binding{{"c", "p/0"}}, page)
}
