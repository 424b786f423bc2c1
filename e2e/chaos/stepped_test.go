//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// killedAtEach checks that the process was killed at each of the expected calls.
func (s *stepper) killedAtEach() {
	s.Helper()
	expected := slices.Concat(everyCall, s.cloud.calls)
	if testing.Short() {
		expected = shortCalls
	}
	for _, call := range expected {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.dies)), func(key string) bool {
			return s.dies[key] == afterIt && strings.HasSuffix(key, call)
		}) {
			s.Errorf("the process was not killed at %q", call)
		}
	}
}

// isDrained checks that the pods are gone when the VM is about to be deleted.
func (s *stepper) isDrained() {
	s.Helper()
	remaining, err := s.lab.Target.CoreV1().Pods(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", stepped).String(),
	})
	s.must(err)
	if len(remaining.Items) > 0 {
		s.Fatalf("the VM is about to be deleted, and %d pods are on its Node, such as %s", len(remaining.Items), remaining.Items[0].Name)
	}
}

// oneVM checks that one VM was created for the machine, and deleted.
func (s *stepper) oneVM() {
	s.Helper()
	calls, err := s.lab.Cloud.Calls()
	s.must(err)
	changes := map[cloudapi.Operation]int{}
	for _, call := range calls {
		if call.Changed && max(call.Token, call.MachineUID) == s.uid {
			changes[call.Operation]++
		}
	}
	want := map[cloudapi.Operation]int{cloudapi.OpCreateInstance: 1, cloudapi.OpModifyInstance: 1, cloudapi.OpDeleteInstance: 1}
	if !maps.Equal(changes, want) {
		s.Errorf("changes at the cloud: %v, want %v", changes, want)
	}
}

// evictedOnce checks that each pod on the machine's Node was evicted once.
func (s *stepper) evictedOnce() {
	s.Helper()
	requests, err := s.lab.Requests(s.recorder.Position)
	s.must(err)
	removals := map[string]int{}
	for _, r := range requests {
		if r.IsFleet() && r.IsWrite() && r.Resource == "pods" && r.Code < http.StatusMultipleChoices {
			removals[r.Name]++
		}
	}
	want := map[string]int{}
	for _, pod := range s.pods {
		want[pod] = 1
	}
	if !maps.Equal(removals, want) {
		s.Errorf("evictions by pod: %v, want %v", removals, want)
	}
}

// free returns an error while the class or its Secret has finalizers after the machines are gone.
func (s *stepper) free(ctx context.Context) error {
	class, err := s.lab.Machines.MachineV1alpha1().MachineClasses(stepped).Get(ctx, harness.ClassName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	secret, err := s.lab.Control.CoreV1().Secrets(stepped).Get(ctx, harness.ClassName, metav1.GetOptions{})
	if err == nil && len(class.Finalizers)+len(secret.Finalizers) > 0 {
		err = fmt.Errorf("the class has finalizers %q, its Secret %q", class.Finalizers, secret.Finalizers)
	}
	return err
}
