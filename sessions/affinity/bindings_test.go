package affinity

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestPagesOfAnySizeListAllBindingsOfAPoolAndAllSessionsOfAWorker(t *testing.T) {
	now := time.Now()
	table := New(func() time.Time { return now })
	table.Put("p", "000.expired", "p/0", always)
	now = now.Add(time.Millisecond)
	var all []api.SessionBinding
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(300) {
		b := api.SessionBinding{Session: fmt.Sprintf("%03d", i), Worker: fmt.Sprint("p/", i%3)}
		all = append(all, b)
		table.Put("p", b.Session, b.Worker, always)
		table.Put("pp", b.Session, "pp/0", always)
		table.Put("p", b.Session+".unbound", "p/0", always)
		table.Put("p", b.Session+".unbound", "", always)
	}
	now = now.Add(DefaultTTL - time.Millisecond) // no Put has swept what expires now
	require.Equal(t, map[string]int{"p/0": 100, "p/1": 100, "p/2": 100}, table.Counts("p"))
	slices.SortFunc(all, func(a, b api.SessionBinding) int { return strings.Compare(a.Session, b.Session) })
	ofWorker := slices.DeleteFunc(slices.Clone(all), func(b api.SessionBinding) bool { return b.Worker != "p/1" })
	for _, limit := range []int{1, 2, 7, 100, 299, 300, 301, 1000} {
		for worker, want := range map[string][]api.SessionBinding{"": all, "p/1": ofWorker} {
			var listed []api.SessionBinding
			for after, more := "", true; more; {
				var page []api.SessionBinding
				page, more = table.Bindings("p", worker, after, limit)
				require.Equal(t, min(limit, len(want)-len(listed)), len(page))
				listed = append(listed, page...)
				after = page[len(page)-1].Session
			}
			require.Equal(t, want, listed, "limit %d", limit)
		}
	}
}

func TestASmallPageCollectsFewBindings(t *testing.T) {
	table := New(nil)
	for i := range 10_000 {
		table.Put("p", fmt.Sprint(i), "p/0", always)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(3, func() { table.Bindings("p", "", "", 1) }), 5.0)
}
