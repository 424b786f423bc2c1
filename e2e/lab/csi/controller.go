package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// retry is the time between attempts.
	retry = time.Second
	// stepTimeout bounds an attempt. It is longer than the cloud keeps a call unanswered, and than
	// usual settings of its latency.
	stepTimeout = 5 * time.Minute
	// workers is the number of workers of each kind; they mostly wait for the cloud, and must not
	// delay other objects.
	workers = 64
)

// Config configures a Controller.
type Config struct {
	// Client of the cluster.
	Client kubernetes.Interface
	// Cloud is the URL of the cloud, HTTPClient makes the calls of it, and Credentials is the token
	// that it requires.
	Cloud       string
	HTTPClient  *http.Client
	Credentials string
	// Clock is the real one when nil.
	Clock clock.WithTicker
	// Log is slog's default when nil.
	Log *slog.Logger
}

// Controller provisions and attaches volumes.
type Controller struct {
	attacher    *attacher
	provisioner *provisioner
}

// New returns a Controller.
func New(cfg Config) (*Controller, error) {
	if cfg.Client == nil || cfg.Cloud == "" || cfg.HTTPClient == nil {
		return nil, errors.New("controller.Config: Client, Cloud and HTTPClient are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	attach, err := newAttacher(cfg)
	if err != nil {
		return nil, err
	}
	provision, err := newProvisioner(cfg)
	if err != nil {
		return nil, err
	}
	return &Controller{attach, provision}, nil
}

// Run provisions and attaches until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { c.attacher.run(ctx) })
	wg.Go(func() { c.provisioner.run(ctx) })
	wg.Wait()
	return nil
}

// watch calls wake for all existing objects of a kind, and for every change.
func watch[T any](informer cache.SharedIndexInformer, wake func(T)) error {
	saw := func(obj any) {
		if object, ok := obj.(T); ok {
			wake(object)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, obj any) { saw(obj) }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watch %T: %w", *new(T), err)
	}
	return nil
}

// seen returns an object from an informer's cache, or the zero value.
func seen[T any](informer cache.SharedIndexInformer, key string) (object T) {
	if obj, exists, err := informer.GetStore().GetByKey(key); err == nil && exists {
		object, _ = obj.(T)
	}
	return object
}
