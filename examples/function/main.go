// Command function is an agent of your own: it does all that tempool agent does, and runs the function "thumbnail"
// within itself.
package main

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"os"

	"github.com/tempool/tempool/cmd/tempool/cli"
	sdk "github.com/tempool/tempool/sdk/go"
	"github.com/tempool/tempool/worker"
)

type picture struct {
	PNG   []byte `json:"png"`   // base64 in JSON
	Width int    `json:"width"` // of the thumbnail, in pixels
}

func main() {
	worker.Register("thumbnail", thumbnail)
	os.Exit(cli.Main(append([]string{"agent"}, os.Args[1:]...)...))
}

func thumbnail(_ context.Context, p picture) (*picture, error) {
	large, err := png.Decode(bytes.NewReader(p.PNG))
	if err != nil || p.Width < 1 || p.Width > large.Bounds().Dx() {
		return nil, sdk.Errorf("invalid_params", "send a PNG, and a width of 1 up to its own: %v", err)
	}
	from := large.Bounds()
	small := image.NewRGBA(image.Rect(0, 0, p.Width, max(1, from.Dy()*p.Width/from.Dx())))
	for y := range small.Rect.Max.Y {
		for x := range small.Rect.Max.X {
			small.Set(x, y, large.At(from.Min.X+x*from.Dx()/p.Width, from.Min.Y+y*from.Dy()/small.Rect.Max.Y))
		}
	}
	var out bytes.Buffer
	err = png.Encode(&out, small)
	return &picture{PNG: out.Bytes(), Width: p.Width}, err
}
