package api

// OtherHostError is an error about a lease or a pool that other hosts' gateways serve.
type OtherHostError struct {
	Coded          *Error
	Host, Endpoint string // of a lease
	Gateways       []Peer // of a pool; the one with the most workers in service first
}

// Peer is the gateway of another host.
type Peer struct {
	Host string `json:"host"`
	// Endpoint is the base URL of calls: http://HOST:PORT, https://HOST:PORT or unix:PATH.
	Endpoint string `json:"endpoint"`
}

func (e OtherHostError) Unwrap() error { return e.Coded }

func (e OtherHostError) Error() string { return e.Coded.Error() }
