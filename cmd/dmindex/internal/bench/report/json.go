package report

import (
	"encoding/json"
	"io"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// WriteJSON writes {"runs": [...]}, a Summary each.
func WriteJSON(out io.Writer, results []*bench.Result) error {
	runs := make([]bench.Summary, len(results))
	for i, r := range results {
		runs[i] = r.Summary()
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"runs": runs})
}
