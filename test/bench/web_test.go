package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const wrkOutput = `Running 2s test @ http://127.0.0.1:8000
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   412.10us  120.50us   4.10ms   90.00%
    Req/Sec    18.50k     1.20k   20.00k    70.00%
  36800 requests in 2.00s, 39.00MB read
Requests/sec:  18400.25
Transfer/sec:     19.50MB`

func TestTheRateIsParsedFromTheOutputOfWrk(t *testing.T) {
	rate, err := readWrk(wrkOutput)
	require.NoError(t, err)
	require.Equal(t, 18400.25, rate)
}

func TestARunWithErrorsIsRejected(t *testing.T) {
	for _, problem := range []string{"  Non-2xx or 3xx responses: 12",
		"  Socket errors: connect 0, read 3, write 0, timeout 0"} {
		_, err := readWrk(wrkOutput + "\n" + problem)
		require.ErrorContains(t, err, "some requests failed")
	}
	_, err := readWrk("unable to connect to 127.0.0.1:8000 Connection refused")
	require.ErrorContains(t, err, "no rate")
}
