package transport

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATokenIsSentOnlyOverTLSAndToLoopback(t *testing.T) {
	for text, want := range map[string]bool{"http://127.0.0.1:1": true, "http://[::1]:1": true, "https://example.org": true, "http://example.org": false,
		"http://10.0.0.1:7460": false, "http://localhost:1": true, "http://gateway": false} {
		request, err := http.NewRequest(http.MethodGet, text, nil)
		require.NoError(t, err)
		require.Equal(t, want, private(request.URL), text)
	}
}
