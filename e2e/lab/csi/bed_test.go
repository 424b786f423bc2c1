package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// bed is a running Controller between a cluster and the cloud, in a bubble whose time passes
// without waiting.
type bed struct {
	*testing.T

	client *fake.Clientset
	cloud  *cloudsim.Cloud
}

// handler makes calls without a network.
type handler struct{ http.Handler }

func (h handler) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		if cut := recover(); cut != nil {
			err = fmt.Errorf("no answer: %v", cut)
		}
	}()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func inBed(t *testing.T, objects []runtime.Object, test func(b *bed)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		cloud, err := cloudsim.Open(cloudsim.Config{
			StateDir: dir, CallLog: filepath.Join(dir, "calls.jsonl"), Settings: cloudsim.DefaultSettings(), Seed: 1, Log: log,
			Hosts: map[cloudapi.BootMode]guest.Host{cloudapi.BootSimulated: guest.Nowhere{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		b := &bed{T: t, client: fake.NewClientset(objects...), cloud: cloud}
		c, err := New(Config{Client: b.client, Cloud: "http://cloud", HTTPClient: &http.Client{Transport: handler{cloud.Handler()}}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- cloud.Run(ctx) }()
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			cancel()
			if err := errors.Join(<-ended, <-ended, cloud.Close()); err != nil {
				t.Error(err)
			}
		}()
		b.pass(time.Second)
		test(b)
	})
}

func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// call makes a call that has to work.
func call[T any](b *bed, method, path string, in any) (out T) {
	b.Helper()
	c := cloud{url: "http://cloud", client: &http.Client{Transport: handler{b.cloud.Handler()}}}
	if err := c.call(b.Context(), method, path, in, &out); err != nil {
		b.Fatal(err)
	}
	return out
}

func (b *bed) volumes() []cloudapi.Volume {
	b.Helper()
	return call[cloudapi.VolumeList](b, http.MethodGet, cloudapi.PathVolumes, nil).Items
}

func (b *bed) settings(patch string) {
	b.Helper()
	call[cloudapi.Settings](b, http.MethodPatch, cloudapi.PathSettings, json.RawMessage(patch))
}

// must takes the results of a call, and then a bed that fails if there was an error.
func must[T any](value T, err error) func(*bed) T {
	return func(b *bed) T {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return value
	}
}

func (b *bed) events() (reasons []string) {
	b.Helper()
	b.pass(time.Second)
	for _, e := range must(b.client.CoreV1().Events("").List(b.Context(), metav1.ListOptions{}))(b).Items {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}
