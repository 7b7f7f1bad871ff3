package codec

import (
	"net"
	"net/http"
	"slices"

	"go.temporal.io/sdk/converter"

	"github.com/tempool/tempool/internal/loopback"
)

// maxServerBody bounds a request to a codec server, in bytes: about what Temporal takes in one message, in base64.
const maxServerBody = 8 << 20

// Server returns a codec server for a browser and for programs of this machine: POST /encode and /decode, as the
// Temporal Web UI and CLI want them. It decrypts for everyone who reaches it, so it must listen on loopback; it refuses
// requests for other host names, and lets pages of the named origins, such as http://localhost:8233, use it.
func Server(c converter.PayloadCodec, origins []string) http.Handler {
	handler := converter.NewPayloadCodecHTTPHandler(c)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !loopback.Host(host) {
			http.Error(w, "this codec server serves loopback addresses only", http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(origins, origin) {
				http.Error(w, "pages of "+origin+" may not use this codec server; name it with --origin", http.StatusForbidden)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Allow-Headers", "Content-Type, X-Namespace, Authorization")
			w.Header().Set("Access-Control-Allow-Methods", http.MethodPost)
			w.Header().Set("Vary", "Origin")
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxServerBody)
		handler.ServeHTTP(w, r)
	})
}
