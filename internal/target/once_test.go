package target

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The server is overloaded and sends a Retry-After.
func TestOnceDoesNotWait(t *testing.T) {
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sent++; sent == 1 {
			w.Header().Set("Retry-After", "0") // at once, so that the test does not wait
			http.Error(w, "too many requests, please try again later", http.StatusTooManyRequests)
			return
		}
		http.Error(w, "it is gone", http.StatusNotFound)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(SendOnce(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().Pods("a").Delete(Once(t.Context()), "web", metav1.DeleteOptions{})
	if !apierrors.IsTooManyRequests(err) || sent != 1 {
		t.Errorf("sent %d times: %v", sent, err)
	}
	sent = 0
	err = client.CoreV1().Pods("a").Delete(t.Context(), "web", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) || sent != 2 {
		t.Errorf("without Once, sent %d times: %v", sent, err)
	}
}
