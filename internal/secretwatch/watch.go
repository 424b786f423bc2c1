package secretwatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Pauses between two watches of a Secret: the first, doubled with each failure, up to the longest;
// and a jitter of up to half of it, so that watches do not begin at the same time.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	jitter       = 0.5
)

// printLength of the checksum, in bytes.
const printLength = 8

// Print returns a checksum of the data of a Secret; "" for none, and for one that is being deleted
// and cannot get our finalizer any more. It may be published: it is salted with the UID, so that it
// reveals nothing of the data.
func Print(s *corev1.Secret) string {
	if s == nil || s.DeletionTimestamp != nil && !slices.Contains(s.Finalizers, v1alpha1.SecretFinalizerName) {
		return ""
	}
	sum := sha256.New()
	sum.Write([]byte(s.UID))
	_ = json.NewEncoder(sum).Encode(s.Data) // bytes can always be encoded, in the order of their keys
	return hex.EncodeToString(sum.Sum(nil)[:printLength])
}

// run watches a Secret until ctx ends.
func (w *Watches) run(ctx context.Context, s *watched) {
	pause := firstPause
	for {
		err := w.follow(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = firstPause
		} else {
			klog.FromContext(ctx).Error(err, "Failed to watch Secret; reading it periodically", "secret", s.key)
			w.lost(s)
		}
		timer := w.cfg.Clock.NewTimer(wait.Jitter(pause, jitter))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		pause = min(2*pause, longestPause)
	}
}

// follow watches a Secret until the API server ends the watch. A watch without a version begins
// with the current object, if it exists.
func (w *Watches) follow(ctx context.Context, s *watched) error {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.key.Name).String()}
	watcher, err := w.cfg.Client.Secrets(s.key.Namespace).Watch(ctx, options)
	if err != nil {
		return fmt.Errorf("watch Secret %s: %w", s.key, err)
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, isOpen := <-watcher.ResultChan():
			if !isOpen {
				return nil
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watch Secret %s: %w", s.key, apierrors.FromObject(event.Object))
			}
			w.handle(s, event)
		}
	}
}

// handle handles an event.
func (w *Watches) handle(s *watched, event watch.Event) {
	secret, ok := event.Object.(*corev1.Secret)
	if !ok || secret.Name != s.key.Name {
		return
	}
	if event.Type == watch.Deleted {
		secret = nil
	}
	w.saw(s, Print(secret))
}
