package spec

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTextOfASpecParsesToTheSameSpec(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "examples", "*", "pool.toml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	specs := map[string]Spec{}
	for _, file := range append(files, filepath.Join("testdata", "full.toml")) {
		specs[file], err = Load(file)
		require.NoError(t, err)
	}
	odd := good()
	odd.Pool.Dir = "/srv/\"a\"\\b\x7f\t\u2028é"
	odd.Pool.Env = map[string]string{"PLAIN": "", "with.dot": "line\nline", "Ä \"x\"": "\x01"}
	odd.Start.Warmup = []Warmup{{Method: "load",
		Params: json.RawMessage(`{"n": 1.5, "big": 100000, "list": [1, "two", {"three": true}], "empty": {}}`)},
		{Method: "poke", Params: json.RawMessage(`[1, 2]`), Notification: true}}
	odd.Health.CPUBands, odd.Health.MemoryBands = Bands{20, 50, 80, 95}, Bands{1, 2, 3, 4}
	odd.Rotation.MaxMemory, odd.Limits.Memory = 0, 3<<30
	require.NoError(t, odd.Validate())
	specs["odd"] = odd
	bare := good() // as a Go program may make it
	bare.Pool.RunArgs, bare.Pool.EnvFrom, bare.Pool.Env, bare.Start.Warmup, bare.Health.Command, bare.Health.CPUBands =
		nil, nil, nil, nil, nil, nil
	bare.Limits.CPUAffinity, bare.Sandbox.Read, bare.Watch.Ignore = nil, nil, nil
	require.NoError(t, bare.Validate())
	specs["bare"] = bare
	for name, s := range specs {
		text := s.Text()
		read, err := Parse([]byte(text), name)
		require.NoError(t, err, text)
		require.Empty(t, Changes(s, read), text)
		require.Empty(t, Changes(read, s))
	}
}

func TestTheTextOfASpecHasWhatIsNotTheDefault(t *testing.T) {
	s := good()
	s.Pool.Size, s.Queue.Size = 7, 12
	s.Pool.Env = map[string]string{"A": "1"}
	require.Equal(t, "[pool]\nname = \""+s.Pool.Name+"\"\nsize = 7\ncommand = "+tomlValue(treeOf(s)["pool"]["command"])+
		"\nenv = { A = \"1\" }\n\n[queue]\nsize = 12\n", s.Text())
}
