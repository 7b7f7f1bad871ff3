package redis

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

func TestAURLMayNameTheVariableOfItsPassword(t *testing.T) {
	const password = "a@b:c/d +%$é"
	server := redistest.Start(t)
	operator := redis.NewClient(&redis.Options{Addr: server.Address()})
	defer operator.Close()
	require.NoError(t, operator.ConfigSet(t.Context(), "requirepass", password).Err())
	address := "redis://:$TEMPOOL_TEST_PASSWORD@" + server.Address()
	require.NoError(t, spec.CheckRedisURL(address))
	_, err := Open(Options{URL: address})
	require.ErrorIs(t, err, api.ErrInvalid)
	require.ErrorContains(t, err, "TEMPOOL_TEST_PASSWORD")

	t.Setenv("TEMPOOL_TEST_PASSWORD", password)
	store, err := Open(Options{URL: address})
	require.NoError(t, err)
	defer store.Close()
	require.ErrorIs(t, errorOf(store.Get(t.Context(), "none")), api.ErrSessionNotFound)

	literal, err := withPassword("redis://:%24HOME@host:6379")
	require.NoError(t, err)
	require.Equal(t, "redis://:%24HOME@host:6379", literal)
}
