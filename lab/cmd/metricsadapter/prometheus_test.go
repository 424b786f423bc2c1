package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
)

func TestExternalMetric(t *testing.T) {
	for name, c := range map[string]struct {
		metric, answer string
		status         int
		want           string // "" is an error
	}{
		"a value":            {"load", `{"data":{"result":[{"value":[1700000000.5,"3.3333"]}]}}`, http.StatusOK, "3333m"},
		"no value":           {"load", `{"data":{"result":[]}}`, http.StatusOK, ""},
		"several values":     {"load", `{"data":{"result":[{"value":[1,"1"]},{"value":[1,"2"]}]}}`, http.StatusOK, ""},
		"not a number":       {"load", `{"data":{"result":[{"value":[1,"NaN"]}]}}`, http.StatusOK, ""},
		"an error":           {"load", `{"error":"parse error"}`, http.StatusBadRequest, ""},
		"an unknown metric":  {"other", `{"data":{"result":[{"value":[1,"1"]}]}}`, http.StatusOK, ""},
		"another server":     {"load", `<html>`, http.StatusOK, ""},
		"an incomplete pair": {"load", `{"data":{"result":[{"value":[1]}]}}`, http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.Query().Get("query"); got != "sum(x)" {
					t.Errorf("query %q, want sum(x)", got)
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
			}))
			defer server.Close()
			p := &prometheus{address: server.URL, client: server.Client(), queries: map[string]string{"load": "sum(x)"}}
			list, err := p.GetExternalMetric(t.Context(), "ns", labels.Everything(), provider.ExternalMetricInfo{Metric: c.metric})
			switch {
			case c.want == "" && err == nil:
				t.Errorf("got %v, want an error", list)
			case c.want != "" && err != nil:
				t.Error(err)
			case c.want != "" && list.Items[0].Value.String() != c.want:
				t.Errorf("got %s, want %s", list.Items[0].Value.String(), c.want)
			}
		})
	}
}
