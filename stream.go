package tempool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/tempool/tempool/internal/transport"
)

// maxChunkBytes bounds one chunk of a streamed answer.
const maxChunkBytes = 32 << 10

// Stream calls a method and yields the answer in chunks as they arrive; the network decides where a chunk ends. in is a []byte or an
// io.Reader, which are sent as they are, or any other value, which is sent as JSON; nil means no body. The call starts when the iteration starts,
// and leaving the loop early cancels it. An error comes last, without a chunk; errors are those of Call.
func (p *Pool) Stream(ctx context.Context, method string, in any) iter.Seq2[[]byte, error] {
	return stream(ctx, p.send, method, in)
}

func stream(ctx context.Context, send sender, method string, in any) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		body, err := transport.AnyBody(in)
		if err != nil {
			yield(nil, err)
			return
		}
		reply, err := send(ctx, method, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer reply.Close()
		buffer := make([]byte, maxChunkBytes)
		for {
			n, err := reply.Body.Read(buffer)
			if n > 0 && !yield(bytes.Clone(buffer[:n]), nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, reply.Interrupted(err))
				return
			}
		}
	}
}
