package simkubelet

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestProve(t *testing.T) {
	var bearer string
	var answer func(w http.ResponseWriter)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		bearer = r.Header.Get("Authorization")
		answer(w)
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	prove, err := NewProver(&rest.Config{Host: server.URL, BearerToken: "not to be used"})
	if err != nil {
		t.Fatal(err)
	}
	says := func(code int, user string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"status": {"userInfo": {"username": %q}}}`, user)
		}
	}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string // part of the error; "" is none
	}{
		"works":       {says(http.StatusCreated, "system:bootstrap:abcdef"), ""},
		"refused":     {says(http.StatusUnauthorized, ""), "401"},
		"other user":  {says(http.StatusCreated, "system:anonymous"), "system:anonymous"},
		"other token": {says(http.StatusCreated, "system:bootstrap:zzzzzz"), "system:bootstrap:zzzzzz"},
		"nonsense":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) }, "read the API server's answer"},
	} {
		answer = c.answer
		err := prove(t.Context(), "abcdef.0123456789abcdef")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
		if bearer != "Bearer abcdef.0123456789abcdef" {
			t.Errorf("%s: the request was sent by %q", name, bearer)
		}
	}
}
