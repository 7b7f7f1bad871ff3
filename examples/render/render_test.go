package render_test

import (
	"bytes"
	"image/color"
	"image/png"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	setup "github.com/tempool/tempool/internal/examplesetup"
	"github.com/tempool/tempool/internal/need"
	"github.com/tempool/tempool/process/wire"
	"github.com/tempool/tempool/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAPageIsRenderedUntilTheBrowserDiesWhichTheWorkerReports(t *testing.T) {
	need.Program(t, "chromium", "pkill")
	s, err := spec.Load("pool.toml")
	require.NoError(t, err)
	p := setup.Start(t, setup.Host(t, nil), s, 1)
	for range 2 { // the browser stays open
		answer, err := p.Conn().Call(t.Context(), wire.Request{
			Method: "render", Payload: []byte(
				`<body style="background: red"><script>document.body.style.background = "rgb(0, 128, 255)"</script>`),
		})
		require.NoError(t, err)
		image, err := png.Decode(bytes.NewReader(answer.Payload))
		require.NoError(t, err)
		require.Equal(t, 800, image.Bounds().Dx())
		require.Equal(t, 600, image.Bounds().Dy())
		r, g, b, _ := image.At(400, 300).RGBA()
		require.Equal(t, color.RGBA{0, 128, 255, 255}, color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255})
	}
	var failure *wire.RemoteError
	_, err = p.Conn().Call(t.Context(), wire.Request{Method: "render"})
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "no_html", failure.Code)
	require.False(t, failure.Fatal)
	require.NoError(t, p.Probe(t.Context()))

	require.NoError(t, exec.CommandContext(t.Context(), "pkill", "-KILL", "-P", strconv.Itoa(p.Info().PID),
		"chromium").Run())
	require.Error(t, p.Probe(t.Context()))
	_, err = p.Conn().Call(t.Context(), wire.Request{Method: "render", Payload: []byte("<p>")})
	require.ErrorAs(t, err, &failure)
	require.True(t, failure.Fatal)
}
