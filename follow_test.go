package tempool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestAFollowerFollowsLaterAgentsAndReportsEachFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var reported []string
		report := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, what)
		}
		all := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(reported)
		}
		looks := 0
		reads := map[string]int{}
		f := follower{
			endpoints: func(context.Context) ([]string, error) {
				looks++
				switch looks {
				case 1:
					return []string{"a"}, nil
				case 2, 3:
					return nil, errors.New("no answer")
				}
				return []string{"a", "b"}, nil
			},
			begin: func(endpoint string, late bool) streamReader {
				if late {
					report(endpoint + " is late")
				}
				return func(_ context.Context, answered func()) error {
					mu.Lock()
					reads[endpoint]++
					n := reads[endpoint]
					mu.Unlock()
					if endpoint == "b" {
						return nil
					}
					switch n {
					case 3:
						answered()
					case 6:
						return api.Errorf(api.CodeUnauthorized, "refused")
					}
					return errors.New("broken")
				}
			},
			failed: func(endpoint string, err error) { report(endpoint + ": " + err.Error()) },
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.run(ctx)
		}()
		require.Equal(t, []string{"a: broken"}, all())
		<-time.After(streamRetry + time.Millisecond)
		require.Equal(t, []string{"a: broken"}, all(), "still the same failure")
		<-time.After(4 * agentsInterval)
		require.Equal(t, []string{"a: broken", "a: broken", ": no answer", "a: unauthorized: refused", "a: broken",
			"b is late"}, all(), "the second after an answer, and further ones with other codes")
		cancel()
		<-ended
		require.Greater(t, reads["a"], 10)
		require.Positive(t, reads["b"])
	})
}
