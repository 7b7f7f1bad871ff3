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

func TestPagesOfAnySizeListAllBindingsOfAPoolAndAllSessionsOfAWorker(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Put("p", "000.expired", "p/0", always)
	now = now.Add(time.Millisecond)
	var all []Binding
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(300) {
		b := Binding{fmt.Sprintf("%03d", i), fmt.Sprint("p/", i%3)}
		all = append(all, b)
		table.Put("p", b.Session, b.Worker, always)
		table.Put("pp", b.Session, "pp/0", always)
		table.Put("p", b.Session+".unbound", "p/0", always)
		table.Put("p", b.Session+".unbound", "", always)
	}
	now = now.Add(DefaultTTL - time.Millisecond) // no Put has swept what expires now
	require.Equal(t, map[string]int{"p/0": 100, "p/1": 100, "p/2": 100}, table.Counts("p"))
	slices.SortFunc(all, func(a, b Binding) int { return strings.Compare(a.Session, b.Session) })
	for _, limit := range []int{1, 2, 7, 100, 299, 300, 301, 1000} {
		var listed, ofWorker []Binding
		for after, more := "", true; more; {
			var page []Binding
			page, more = table.Bindings("p", after, limit)
			require.Equal(t, min(limit, len(all)-len(listed)), len(page))
			listed = append(listed, page...)
			after = page[len(page)-1].Session
		}
		require.Equal(t, all, listed, "limit %d", limit)
		for after, more := "", true; more; {
			var page []string
			page, more = table.Page("p/1", after, limit)
			require.Equal(t, min(limit, 100-len(ofWorker)), len(page))
			for _, after = range page {
				ofWorker = append(ofWorker, Binding{after, "p/1"})
			}
		}
		require.Equal(t, slices.DeleteFunc(listed, func(b Binding) bool { return b.Worker != "p/1" }), ofWorker)
	}
}

func TestASmallPageCollectsFewBindings(t *testing.T) {
	table := New(nil)
	for i := range 10_000 {
		table.Put("p", fmt.Sprint(i), "p/0", always)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(3, func() { table.Bindings("p", "", 1) }), 5.0)
}
