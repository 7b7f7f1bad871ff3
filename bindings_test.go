package tempool

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestBindingsOfAllHostsAreOneList(t *testing.T) {
	one, two := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	one.session = answering(http.StatusOK,
		`{"bindings":[{"session":"a","worker":"p/0"},{"session":"c","worker":"p/0"}],"next":"c"}`)
	two.session = answering(http.StatusOK,
		`{"bindings":[{"session":"b","worker":"p/1"},{"session":"c","worker":"p/1"}],"next":""}`)
	pool := clientOf(t, one, two).Pool("p")
	list, err := pool.Bindings(t.Context(), "", 3)
	require.NoError(t, err)
	require.Equal(t, &api.SessionBindings{Next: "c", Bindings: []api.SessionBinding{
		{Session: "a", Worker: "p/0"}, {Session: "b", Worker: "p/1"}, {Session: "c", Worker: "p/0"},
		{Session: "c", Worker: "p/1"},
	}}, list, "both bindings of a session are on the same page")
	list, err = pool.Bindings(t.Context(), "", 2)
	require.NoError(t, err)
	require.Equal(t, "b", list.Next)
	require.Len(t, list.Bindings, 2)

	two.session = answering(http.StatusBadGateway, "")
	_, err = pool.Bindings(t.Context(), "", 0)
	require.Error(t, err, "a list without those of a host is not a list")

	none := newFakeGateway(t, "unix")
	none.session = answering(http.StatusOK, `{"bindings":[],"next":""}`)
	list, err = clientOf(t, none).Pool("p").Bindings(t.Context(), "", 0)
	require.NoError(t, err)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	require.JSONEq(t, `{"bindings":[],"next":""}`, string(text), "no bindings are an empty list, not null")
}

func TestABindingToAWorkerOfOneHostEndsThoseOfOthers(t *testing.T) {
	one, two := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	for g, worker := range map[*fakeGateway]string{one: "", two: "p/1"} {
		g.session = func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodDelete:
				w.WriteHeader(http.StatusNoContent)
			case r.Method == http.MethodPut && worker == "":
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"code":"no_workers","detail":"p/1 is on another host","started":false}`)
			default:
				_, _ = io.WriteString(w, `{"session":"s","worker":"`+worker+`"}`)
			}
		}
	}
	session := clientOf(t, one, two).Pool("p").Session("s")
	require.NoError(t, session.Bind(t.Context(), 1))
	for _, g := range []*fakeGateway{one, two} {
		request, _ := g.last()
		require.Equal(t, "DELETE /v1/pools/p/bindings/s?keep=p%2F1", request.Method+" "+request.URL.RequestURI())
	}
	worker, err := session.Worker(t.Context())
	require.NoError(t, err)
	require.Equal(t, "p/1", worker)
	require.NoError(t, session.Unbind(t.Context()))
	require.ErrorIs(t, clientOf(t, one).Pool("p").Session("..").Bind(t.Context(), 1), api.ErrInvalid)
}

func TestABindingWhoseOthersCannotBeEndedSaysThatItHolds(t *testing.T) {
	one, two := newFakeGateway(t, "unix"), newFakeGateway(t, "tcp")
	for _, g := range []*fakeGateway{one, two} {
		g.session = func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete && g == two {
				refuse(w, api.CodeUnavailable, false)
				return
			}
			_, _ = io.WriteString(w, `{"session":"s","worker":"p/1"}`)
		}
	}
	client := clientOf(t, one, two)
	chooseFirst(t, client, one)
	err := client.Pool("p").Session("s").Bind(t.Context(), 1)
	var others *OtherBindingsError
	require.ErrorAs(t, err, &others)
	require.Equal(t, "p/1", others.Worker)
	require.ErrorIs(t, err, api.ErrUnavailable)
	require.ErrorContains(t, err, "session s is bound to p/1")
	require.ErrorContains(t, err, two.endpoint)
	require.NotContains(t, err.Error(), one.endpoint)
}
