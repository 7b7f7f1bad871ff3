package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/pool"
	"github.com/tempool/tempool/gateway/ui"
)

// workerSandbox gives a page of a worker an origin of its own: it shares the gateway's address with the dashboard, and
// must not act there as the visitor who has signed in.
const workerSandbox = "sandbox allow-scripts allow-forms"

// setWorkerHeaders names the process that served the call, and takes from its answer what would reach beyond it in a
// browser. It is called after the worker's own headers are set.
func setWorkerHeaders(h http.Header, call *pool.Call) {
	h.Set(api.HeaderWorker, call.Worker())
	h.Set(api.HeaderIncarnation, strconv.FormatInt(call.Incarnation(), 10))
	confine(h)
}

// confine takes from the headers of a worker's answer what would reach beyond that answer in a browser.
func confine(h http.Header) {
	h.Add("Content-Security-Policy", workerSandbox) // each policy holds
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Service-Worker-Allowed")
	h.Del("Clear-Site-Data")
	h.Del(api.HeaderRefused) // only the gateway says so
	if h["Set-Cookie"] == nil {
		return
	}
	cookies := slices.DeleteFunc(h["Set-Cookie"], func(cookie string) bool {
		name := strings.ToLower(strings.TrimLeft(cookie, " \t=")) // browsers send a cookie without a name as its value alone
		return strings.HasPrefix(name, ui.CookiePrefix)
	})
	if h["Set-Cookie"] = cookies; len(cookies) == 0 {
		delete(h, "Set-Cookie")
	}
}

// refuseServiceWorker refuses to fetch the script of a service worker from a worker: it would answer in place of the
// gateway.
func refuseServiceWorker(r *http.Request) error {
	if strings.EqualFold(r.Header.Get("Service-Worker"), "script") {
		return api.Errorf(api.CodeForbidden,
			"a worker cannot serve the script of a service worker, because its address is also the gateway's; serve it "+
				"through a proxy under another host name")
	}
	return nil
}
