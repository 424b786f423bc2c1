package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric returns the value of a metric of a process; one with several sets of labels is named with
// them, as in the answer.
func (l *Lab) Metric(ctx context.Context, process, name string) (float64, error) {
	found, err := l.metrics(ctx, process, func(line string) bool { return line == name })
	if err != nil {
		return 0, err
	}
	value, there := found[name]
	if !there {
		return 0, fmt.Errorf("expected a metric %s of %s, found none", name, process)
	}
	return value, nil
}

// Metrics returns the values of a metric of a process by its labels, as in the answer:
// {reason="x"}.
func (l *Lab) Metrics(ctx context.Context, process, name string) (map[string]float64, error) {
	found, err := l.metrics(ctx, process, func(line string) bool { return strings.HasPrefix(line, name+"{") })
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line, value := range found {
		values[strings.TrimPrefix(line, name)] = value
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("expected a metric %s with labels of %s, found none", name, process)
	}
	return values, nil
}

// metrics returns the values of a process whose name with labels is selected.
func (l *Lab) metrics(ctx context.Context, process string, matches func(name string) bool) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Endpoint(process)+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get the metrics of %s: %w", process, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get the metrics of %s: %w", process, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("get the metrics of %s: %w", process, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get the metrics of %s: %s", process, answer.Status)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !matches(line[:at]) {
			continue
		}
		if found[line[:at]], err = strconv.ParseFloat(line[at+1:], 64); err != nil {
			return nil, fmt.Errorf("metric %s of %s: %w", line[:at], process, err)
		}
	}
	return found, nil
}
