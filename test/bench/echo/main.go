// Echo is a worker that answers with what it is sent, and as small as a process can be: the benchmark of large pools
// runs a thousand of it.
package main

import (
	"context"
	"encoding/json"

	sdk "github.com/tempool/tempool/sdk/go"
)

func main() {
	sdk.Method("echo", func(_ context.Context, body json.RawMessage) (json.RawMessage, error) { return body, nil })
	sdk.Run()
}
