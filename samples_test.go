package tempool

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

// gatewayAt starts a gateway that gives an answer at one URI, and text at others.
func gatewayAt(t *testing.T, uri string, status int, answer string) (endpoint string) {
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		text := answer
		if r.URL.RequestURI() != uri {
			text = "no JSON"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	})
}

func TestSamplesOfSeveralHostsAreJoined(t *testing.T) {
	host := func(status int, answer string) string {
		return gatewayAt(t, "/v1/pools/p/samples?workers=0,7", status, answer)
	}
	one := func(worker, ages string) string {
		return `[{"worker": "` + worker + `", "age_ms": ` + ages +
			`, "incarnation": [1], "memory_bytes": [5], "cpu_percent": [1.5], "calls_per_minute": [2], "score": [90]}]`
	}
	first, second := host(http.StatusOK, one("p/7", "[10]")), host(http.StatusOK, one("p/0", "[20]"))
	uneven, older := host(http.StatusOK, one("p/0", "[1, 2]")), host(http.StatusNotFound,
		`{"code": "not_found", "detail": "no route"}`)
	c := dialed(t, Options{Gateways: []string{first, second, uneven, older}})
	failed := map[string]error{}
	unreachable := func(endpoint string, err error) { failed[endpoint] = err }
	ask := func(gateways ...string) ([]api.RecentSamples, error) {
		return c.Pool("p").RecentSamples(t.Context(),
			SampleOptions{GatewayOptions{gateways, unreachable}, []int{0, 7}})
	}
	all, err := ask()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, []string{"p/0", "p/7"}, []string{all[0].Worker, all[1].Worker})
	require.Equal(t, []int64{20}, all[0].AgeMS)
	require.Len(t, failed, 2)
	require.ErrorContains(t, failed[uneven], "lists of a wrong length")
	require.Equal(t, api.Code("not_found"), api.CodeOf(failed[older]))

	all, err = ask(first)
	require.NoError(t, err)
	require.Len(t, all, 1, "that gateway alone")
	_, err = ask(older)
	require.Error(t, err, "if none answers")
	all, err = c.Pool("p").RecentSamples(t.Context(), SampleOptions{Workers: []int{}})
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = c.Pool("NO").RecentSamples(t.Context(), SampleOptions{})
	require.ErrorIs(t, err, api.ErrPoolNotFound)
}

func TestQueuesOfSeveralHostsAreListed(t *testing.T) {
	gateway := func(answer string) string { return gatewayAt(t, "/v1/pools/p/queue", http.StatusOK, answer) }
	second := gateway(`{"host": "b", "minutes": [{"age_ms": 12000, "seconds": 12, "queue": 7}]}`)
	first := gateway(`{"host": "a", "minutes": []}`)
	large := gateway(`{"host": "c", "minutes": [{}` + strings.Repeat(", {}", api.FigureMinutes) + `]}`)
	c := dialed(t, Options{Gateways: []string{second, large, first}})
	failed := map[string]error{}
	all, err := c.Pool("p").RecentQueue(t.Context(),
		GatewayOptions{Unreachable: func(endpoint string, err error) { failed[endpoint] = err }})
	require.NoError(t, err)
	require.Equal(t, []api.RecentQueue{{Host: "a", Minutes: []api.Figures{}},
		{Host: "b", Minutes: []api.Figures{{AgeMS: 12000, Seconds: 12, Queue: 7}}}}, all)
	require.Len(t, failed, 1)
	require.ErrorContains(t, failed[large], "the queue at c has")

	_, err = c.Pool("p").RecentQueue(t.Context(), GatewayOptions{Gateways: []string{large}})
	require.ErrorIs(t, err, api.ErrUnavailable, "none answers as it should")
	_, err = c.Pool("NO").RecentQueue(t.Context(), GatewayOptions{})
	require.ErrorIs(t, err, api.ErrPoolNotFound)
}
