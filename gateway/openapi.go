package gateway

import (
	_ "embed"
	"net/http"
)

// openAPI describes the routes.
//
//go:embed openapi.json
var openAPI []byte

// getOpenAPI is GET /openapi.json.
func getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // fails only if the client is gone
}
