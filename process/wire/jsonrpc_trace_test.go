package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSONRPCCarriesTheTraceInMeta(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced := map[string]string{"traceparent": parent, "x-other": "1"}
	const meta = `"_meta":{"traceparent":"` + parent + `"}`
	for name, c := range map[string]struct {
		params  string
		headers map[string]string
		lsp     bool
		want    string
	}{
		"no trace":                {params: `{"a":1}`, headers: map[string]string{"x-other": "1"}, want: `{"a":1}`},
		"an object":               {params: `{"a":1}`, headers: traced, want: `{` + meta + `,"a":1}`},
		"an empty object":         {params: `{ }`, headers: traced, want: `{` + meta + ` }`},
		"no params":               {headers: traced, want: `{` + meta + `}`},
		"no params, another kind": {headers: traced, lsp: true},
		"an object, another kind": {params: `{"a":1}`, headers: traced, lsp: true, want: `{` + meta + `,"a":1}`},
		"a list":                  {params: `[1]`, headers: traced, want: `[1]`},
		"meta of the caller": {params: `{"a":12345678901234567890,"_meta":{"progressToken":1}}`, headers: traced,
			want: `{"_meta":{"progressToken":1,"traceparent":"` + parent + `"},"a":12345678901234567890}`},
		"the trace of the caller": {params: `{"_meta":{"traceparent":"mine"}}`, headers: traced,
			want: `{"_meta":{"traceparent":"mine"}}`},
		"meta that is not an object": {params: `{"_meta":1}`, headers: traced, want: `{"_meta":1}`},
		"an escaped name of meta": {params: `{"\u005fmeta":{"traceparent":"mine"}}`, headers: traced,
			want: `{"\u005fmeta":{"traceparent":"mine"}}`},
		"meta in an inner object": {params: `{"a":{"_meta":1}}`, headers: traced, want: `{` + meta + `,"a":{"_meta":1}}`},
		"a state": {params: `{}`, headers: map[string]string{"traceparent": parent, "tracestate": `a="1`},
			want: `{"_meta":{"traceparent":"` + parent + `","tracestate":"a=\"1"}}`},
		"a state without a parent": {params: `{}`, headers: map[string]string{"tracestate": "a=1"}, want: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			params, err := paramsOf([]byte(c.params))
			require.NoError(t, err)
			require.Equal(t, c.want, string(withTrace(params, Request{Headers: c.headers}, !c.lsp)))
		})
	}
}
