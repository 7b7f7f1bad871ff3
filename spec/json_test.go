package spec

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJSONHasTheFilesSectionsAndKeys(t *testing.T) {
	data, err := json.Marshal(Default())
	require.NoError(t, err)
	var tree map[string]map[string]any
	require.NoError(t, json.Unmarshal(data, &tree))
	require.Len(t, tree, len(sections))
	count := 0
	for _, k := range keys {
		require.Contains(t, tree[k.section], k.name)
		count++
	}
	for _, section := range tree {
		count -= len(section)
	}
	require.Zero(t, count, "JSON and TOML tags differ")
	require.Equal(t, "24h", tree["rotation"]["max_uptime"])
	require.Equal(t, "auto", tree["rotation"]["max_memory"])
}

func TestMissingKeysInJSONGetTheirDefaults(t *testing.T) {
	want := Default()
	want.Pool.Name, want.Pool.Command = "p", []string{"run"}
	want.Start.Warmup = []Warmup{{Method: "a", Params: json.RawMessage("{}")},
		{Method: "b", Params: json.RawMessage("{}")}}
	for _, text := range []string{
		`{"pool": {"name": "p", "command": ["run"]}, "start": {"warmup": [{"method": "a"}, {"method": "b", ` +
			`"params": null}]}}`,
		`{"pool": {"name": "p", "command": ["run"], "env": null, "env_from": null, "size": null}, "lease": null,
		  "start": {"warmup": [{"method": "a"}, {"method": "b"}]}, "limits": {"cpu_affinity": null, "memory": "", "cpu_time": 0},
		  "queue": {"timeout": null}, "rotation": {"max_memory": null}}`,
	} {
		var s Spec
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		require.Equal(t, want, s)
		require.NoError(t, s.Validate())
	}
}

func TestOnlyTheKeysOfTheFileAreReadFromJSONLetterByLetter(t *testing.T) {
	var s Spec
	require.NoError(t, json.Unmarshal([]byte(`{"pool": {"name": "p", "Name": "q", "colour": 3}, "Pool": {"size": "7"},
		"garden": {}, "start": {"warmup": [{"method": "a", "Method": 3, "params": {"b": 1.0, "a": "<"}}]}}`), &s))
	want := Default()
	want.Pool.Name = "p"
	want.Start.Warmup = []Warmup{{Method: "a", Params: json.RawMessage(`{"a":"\u003c","b":1.0}`)}}
	require.Equal(t, want, s)
	require.NoError(t, s.UnmarshalJSON([]byte("null")))
	require.Equal(t, want, s, "null leaves a spec unchanged")
}

func TestEveryKeyReadsItsDefaultAndNoOtherForm(t *testing.T) {
	defaults := Default()
	tree := encodedTree(defaults)
	for _, k := range keys {
		var s Spec
		require.Nil(t, k.set(&s, tree[k.section][k.name]), k.key())
		require.Equal(t, k.value(&defaults).Interface(), k.value(&s).Interface(), k.key())
		e := k.set(&s, time.Time{})
		require.NotNil(t, e, k.key())
		require.Equal(t, "is a date or a time", e.Problem, k.key())
		require.NotEmpty(t, e.Allowed, k.key())
	}
}

func TestJSONOfTheWrongFormNamesItsKey(t *testing.T) {
	for text, want := range map[string]string{
		`{"pool": {"size": "4"}}`: `pool.size: "4" is a string; allowed: ` +
			`a whole number from 1 to 1000; to have no workers, stop the pool`,
		`{"pool": {"size": 4.5}}`: `pool.size: 4.5 is a number; allowed: ` +
			`a whole number from 1 to 1000; to have no workers, stop the pool`,
		`{"pool": {"command": ["a", null]}}`: `pool.command[1]: is null; allowed: ` +
			`the program and its arguments, such as ["python3", "worker.py"]`,
		`{"pool": 3}`: `pool: 3 is a number; allowed: an object`,
		`{"lease": {"ttl": 60}}`: `lease.ttl: 60 has no unit; allowed: ` +
			`a duration such as "500ms", "30s", "5m" or "24h", from 1ms to 87600h`,
		`{"lease": {"ttl": "60"}}`: `lease.ttl: "60" is not a duration; allowed: ` +
			`a duration such as "500ms", "30s", "5m" or "24h", from 1ms to 87600h`,
		`{"recovery": {"backoff_multiplier": true}}`: `recovery.backoff_multiplier: true is a boolean; allowed: ` +
			`a number from 1 to 100`,
		`{"recovery": {"max_consecutive_failures": 1e99}}`: `recovery.max_consecutive_failures: 1e99 is a number; allowed: ` +
			`a whole number from 1 to 1000000000`,
		`{"rotation": {"surge": "yes"}}`: `rotation.surge: "yes" is a string; allowed: true or false`,
	} {
		var s Spec
		err := json.Unmarshal([]byte(text), &s)
		require.EqualError(t, err, want)
		var shape *Error
		require.ErrorAs(t, err, &shape)
	}
	require.Error(t, json.Unmarshal([]byte(`[]`), new(Spec)))
}
