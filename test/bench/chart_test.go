package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheChartIsWellFormedXMLWithABarPerTarget(t *testing.T) {
	r := &result{}
	r.atMost("a < b & c", -20, 250, "ms")
	r.atLeast("many", 1e9, 1, "×")
	svg := (&report{Results: []*result{r}}).chart()
	bars := 0
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	require.Equal(t, 1+2, bars, "the background and two bars")
	require.Contains(t, svg, "a &lt; b &amp; c")
}
