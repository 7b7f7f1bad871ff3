package spec

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDurationText(t *testing.T) {
	for text, want := range map[string]struct {
		d     time.Duration
		again string
	}{
		"30s":     {30 * time.Second, "30s"},
		"10s":     {10 * time.Second, "10s"},
		"60s":     {time.Minute, "1m"},
		"10m":     {10 * time.Minute, "10m"},
		"24h":     {24 * time.Hour, "24h"},
		"20h10m":  {20*time.Hour + 10*time.Minute, "20h10m"},
		"1h30s":   {time.Hour + 30*time.Second, "1h0m30s"},
		"1.5s":    {1500 * time.Millisecond, "1.5s"},
		"1h0m10s": {time.Hour + 10*time.Second, "1h0m10s"},
		"":        {0, "0s"},
		"0":       {0, "0s"},
		"-1s":     {-time.Second, "-1s"},
	} {
		var d Duration
		require.NoError(t, d.UnmarshalText([]byte(text)), text)
		require.Equal(t, want.d, d.D(), text)
		require.Equal(t, want.again, d.String(), text)
	}
	for _, text := range []string{"30", "30 s", "5 minutes", "1d", "s", " 1s", "9999999h"} {
		require.Error(t, new(Duration).UnmarshalText([]byte(text)), text)
	}
}

func TestBytesText(t *testing.T) {
	for text, want := range map[string]struct {
		n     int64
		again string
	}{
		"512MiB":  {512 << 20, "512MiB"},
		"512 MiB": {512 << 20, "512MiB"},
		"1024KiB": {1 << 20, "1MiB"},
		"1.5GiB":  {1536 << 20, "1536MiB"},
		"2GB":     {2e9, "2GB"},
		"1kB":     {1000, "1kB"},
		"3TB":     {3e12, "3TB"},
		"1TiB":    {1 << 40, "1TiB"},
		"4097B":   {4097, "4097B"},
		"0B":      {0, "0B"},
		"0":       {0, "0B"},
		"":        {0, "0B"},
	} {
		var b Bytes
		require.NoError(t, b.UnmarshalText([]byte(text)), text)
		require.Equal(t, Bytes(want.n), b, text)
		require.Equal(t, want.again, b.String(), text)
	}
	for _, text := range []string{"512", "512M", "512mb", "512KB", "MiB", "-1B", "1e9B", "1/2KiB", "0.5B", "1.2.3B",
		"8388608TiB", "1_0B", "0x1B"} {
		require.Error(t, new(Bytes).UnmarshalText([]byte(text)), text)
	}
}

func TestUnitsInJSONAreText(t *testing.T) {
	data, err := json.Marshal(struct {
		D Duration
		B Bytes
	}{Duration(time.Minute), 1 << 20})
	require.NoError(t, err)
	require.JSONEq(t, `{"D":"1m","B":"1MiB"}`, string(data))

	for _, good := range []string{`"0s"`, `0`, `""`} {
		require.NoError(t, json.Unmarshal([]byte(good), new(Duration)), good)
	}
	for _, bad := range []string{`30`, `1.5`, `true`, `{}`, `"30"`} {
		require.Error(t, json.Unmarshal([]byte(bad), new(Duration)), bad)
		require.Error(t, json.Unmarshal([]byte(bad), new(Bytes)), bad)
	}
}
