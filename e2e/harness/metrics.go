package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric returns the value of a metric of a process; one with several sets of labels is named with them, as it stands
// in the answer.
func (l *Lab) Metric(ctx context.Context, process, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Endpoint(process)+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("ask %s for its metrics: %w", process, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask %s for its metrics: %w", process, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("ask %s for its metrics: %w", process, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("expected a metric %s of %s, found none: %s", name, process, answer.Status)
}
