package gateway

import (
	_ "embed"
	"net/http"
)

// openAPI describes the routes; a test holds it to them.
//
//go:embed openapi.json
var openAPI []byte

// getOpenAPI is GET /openapi.json.
func (g *Gateway) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // a client that is gone reads nothing
}
