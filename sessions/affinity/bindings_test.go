package affinity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheBindingsOfAPoolAreListedInPages(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Put("p", "gone", "p/0", always)
	now = now.Add(DefaultTTL)
	table.Put("p", "b", "p/1", always)
	table.Put("p", "a", "p/0", always)
	table.Put("p", "c", "p/0", always)
	table.Put("pp", "a", "pp/0", always)
	page, more := table.Bindings("p", "", 2)
	require.Equal(t, []Binding{{"a", "p/0"}, {"b", "p/1"}}, page)
	require.True(t, more)
	page, more = table.Bindings("p", "b", 2)
	require.Equal(t, []Binding{{"c", "p/0"}}, page)
	require.False(t, more)

	table.Put("p", "a", "", always)
	table.Put("p", "b", "", always)
	page, _ = table.Bindings("p", "", 9)
	require.Equal(t, []Binding{{"c", "p/0"}}, page)
}

func TestPagesOfAnySizeListAllBindings(t *testing.T) {
	table := New(nil)
	var all []Binding
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(300) {
		b := Binding{fmt.Sprintf("%03d", i), fmt.Sprint("p/", i%3)}
		all = append(all, b)
		table.Put("p", b.Session, b.Worker, always)
		table.Put("pp", b.Session, "pp/0", always)
	}
	slices.SortFunc(all, func(a, b Binding) int { return strings.Compare(a.Session, b.Session) })
	for _, limit := range []int{1, 2, 7, 100, 299, 300, 301, 1000} {
		var listed []Binding
		for after, more := "", true; more; {
			var page []Binding
			page, more = table.Bindings("p", after, limit)
			require.Equal(t, min(limit, len(all)-len(listed)), len(page))
			listed = append(listed, page...)
			after = page[len(page)-1].Session
		}
		require.Equal(t, all, listed, "limit %d", limit)
	}
}

func TestASmallPageCollectsFewBindings(t *testing.T) {
	table := New(nil)
	for i := range 10_000 {
		table.Put("p", fmt.Sprint(i), "p/0", always)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(3, func() { table.Bindings("p", "", 1) }), 5.0)
}
