package worker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADeploymentNeedsANameAndABuildID(t *testing.T) {
	for _, c := range []struct {
		flags, variables Deployment
		want             Deployment
		err              string
	}{
		{},
		{flags: Deployment{"tempool", "1.4.0"}, want: Deployment{"tempool", "1.4.0"}},
		{variables: Deployment{"tempool", "1.4.0"}, want: Deployment{"tempool", "1.4.0"}},
		{flags: Deployment{BuildID: "2"}, variables: Deployment{"tempool", "1"}, want: Deployment{"tempool", "2"}},
		{flags: Deployment{Name: "tempool"}, err: "belong together"},
		{flags: Deployment{BuildID: "1"}, err: "belong together"},
		{flags: Deployment{"a.b", "1"}, err: `invalid --deployment "a.b"`},
		{flags: Deployment{"tempool", "__unversioned__"}, err: "invalid --build-id"},
		{flags: Deployment{"tempool", strings.Repeat("1", 101)}, err: "invalid --build-id"},
	} {
		t.Setenv(deploymentVariable, c.variables.Name)
		t.Setenv(buildIDVariable, c.variables.BuildID)
		d := c.flags
		err := d.complete()
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, d)
		require.Equal(t, c.want.Name != "", d.options().UseVersioning)
	}
}
