package target

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestEvictionIsSentOnce(t *testing.T) {
	var sent []policyv1.Eviction
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var eviction policyv1.Eviction
		if err := json.NewDecoder(r.Body).Decode(&eviction); err != nil {
			t.Error(err)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/a/pods/web/eviction" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		sent = append(sent, eviction)
		refusal := apierrors.NewTooManyRequests("not now", 30).Status()
		refusal.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.Header().Set("Retry-After", "30")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		if err := json.NewEncoder(w).Encode(refusal); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = New(client).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: "web", Namespace: "a"},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("uid")},
	})
	if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds != 30 {
		t.Errorf("error %v, Retry-After %d s", err, seconds)
	}
	if len(sent) != 1 || *sent[0].DeleteOptions.Preconditions.UID != "uid" {
		t.Errorf("sent %d times: %+v", len(sent), sent)
	}
}
