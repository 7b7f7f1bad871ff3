package tempool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// hello is a fake agent with the pool hello of the README. A real agent listens on http://127.0.0.1:7460.
func hello() *httptest.Server {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Tempool-Worker", "hello/0")
		var asked struct{ Name string }
		switch {
		case strings.HasSuffix(r.URL.Path, "/call/greet") && json.NewDecoder(r.Body).Decode(&asked) == nil &&
			asked.Name != "":
			fmt.Fprintf(w, `{"text": "Hello, %s!"}`, asked.Name)
		case strings.HasSuffix(r.URL.Path, "/call/greet"):
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"code": "worker_error", "detail": "greet on hello/0 failed", "started": true,
				"worker_error": {"code": "error", "type": "TypeError", "message": "name is missing"}}`)
		case strings.HasSuffix(r.URL.Path, "/call/count"):
			for _, piece := range []string{"one ", "two ", "three\n"} {
				io.WriteString(w, piece)
				w.(http.Flusher).Flush()
			}
		case r.Method == http.MethodPost, r.Method == http.MethodPut: // check out, renew
			now := time.Now()
			json.NewEncoder(w).Encode(api.Lease{ID: "hello.0.1.1", Worker: "hello/0", Endpoint: server.URL, GrantedAt: now,
				ExpiresAt: now.Add(time.Minute)})
		default: // check in
			io.WriteString(w, `{"state": "ready"}`)
		}
	}))
	return server
}

// The client finds Temporal by the standard settings, and the gateways in each pool's roster.
func ExampleDial() {
	client, err := tempool.Dial(context.Background(), tempool.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	view, err := client.Pool("hello").Workers(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d workers are ready\n", view.Ready, view.Size)
}

// A client with fixed gateways needs no Temporal server for calls and leases.
func ExamplePool_Call() {
	agent := hello()
	defer agent.Close()
	client, err := tempool.Dial(context.Background(), tempool.Options{Gateways: []string{agent.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var answer struct{ Text string }
	err = client.Pool("hello").Call(context.Background(), "greet", map[string]string{"name": "you"}, &answer)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	// Output: Hello, you!
}

func ExamplePool_With() {
	agent := hello()
	defer agent.Close()
	client, err := tempool.Dial(context.Background(), tempool.Options{Gateways: []string{agent.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	urgent := client.Pool("hello").With(tempool.CallOptions{
		Session: "anna", Priority: 9, Timeout: 5 * time.Second,
		Answered: func(a tempool.Answer) { fmt.Println("by", a.Worker) },
	})
	answer, err := urgent.CallRaw(context.Background(), "greet", []byte(`{"name": "Anna"}`))
	fmt.Println(string(answer), err)
	// Output:
	// by hello/0
	// {"text": "Hello, Anna!"} <nil>
}

func ExamplePool_Stream() {
	agent := hello()
	defer agent.Close()
	client, err := tempool.Dial(context.Background(), tempool.Options{Gateways: []string{agent.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for piece, err := range client.Pool("hello").Stream(context.Background(), "count", nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(string(piece))
	}
	// Output: one two three
}

// errors.Is matches an error's code, and errors.As finds the worker's own error.
func ExampleError() {
	agent := hello()
	defer agent.Close()
	client, err := tempool.Dial(context.Background(), tempool.Options{Gateways: []string{agent.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Pool("hello").Call(context.Background(), "greet", nil, nil)
	var theirs *tempool.WorkerError
	switch {
	case errors.As(err, &theirs):
		fmt.Println("the worker:", theirs.Type, theirs.Message)
	case errors.Is(err, tempool.ErrQueueFull), errors.Is(err, tempool.ErrQueueTimeout):
		fmt.Println("overloaded; retry later")
	case errors.Is(err, tempool.ErrWorkerCrashed):
		fmt.Println("the call may have had effects")
	}
	// Output: the worker: TypeError name is missing
}

// A lease is for several calls to the same process. The client renews it until its checkin or the end of its context.
func ExamplePool_Checkout() {
	agent := hello()
	defer agent.Close()
	client, err := tempool.Dial(context.Background(), tempool.Options{Gateways: []string{agent.URL}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background() // for as long as the lease is needed
	lease, err := client.Pool("hello").Checkout(ctx, tempool.CheckoutOptions{Holder: "me", Wait: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	outcome := tempool.OutcomeOK
	for _, name := range []string{"Ada", "Grace"} {
		var answer struct{ Text string }
		if err := lease.Call(ctx, "greet", map[string]string{"name": name}, &answer); err != nil {
			outcome = tempool.OutcomeError
			break
		}
		fmt.Println(lease.Worker, "says", answer.Text)
	}
	fmt.Println(lease.Checkin(ctx, outcome))
	// Output:
	// hello/0 says Hello, Ada!
	// hello/0 says Hello, Grace!
	// <nil>
}
