//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// autoscalerGrows scales a pool up by two machines, and observes them.
func (s *space) autoscalerGrows() {
	const pool = "pool"
	s.proves("CA-04, while they have not joined", (*space).requestedUntilTheyJoin)
	s.deploy(pool, 0)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	a := s.scaler(3, pool)
	film, position := s.film(), s.auditEnd()
	a.resize("increase-size", pool, 2, 2)

	s.proves("CA-04", func(s *space) {
		_, _, puts := s.deploymentWrites(position)
		if len(puts) != 1 {
			s.Fatalf("the autoscaler has written the MachineDeployment at %v, want once", puts)
		}
		s.turnover(film, pool, 2) // the film may be later than the autoscaler
		requests, err := s.lab.Requests(position)
		s.must(err)
		created := 0
		for _, r := range requests {
			if r.Namespace != s.name || r.Resource != "machines" || r.Verb != "create" || r.Code >= 300 {
				continue
			}
			created++
			s.Logf("machine %d was created %s after it was requested", created, r.At.Sub(puts[0]))
		}
		if created != 2 {
			s.Errorf("%d machines were created, want 2", created)
		}
	})
	s.proves("CA-03", func(s *space) {
		s.turnover(film, pool, 2)
		machines, _ := shown[*v1alpha1.Machine](s, film)
		for _, m := range machines { // from its first version on
			if m.Labels[v1alpha1.LabelName] != pool {
				s.Errorf("machine %s has the labels %v", m.Name, m.Labels)
			}
		}
		if set := s.set(pool); set.Spec.Replicas != 2 {
			s.Errorf("MachineSet %s has %d replicas, want 2", set.Name, set.Spec.Replicas)
		}
		if _, _, puts := s.deploymentWrites(position); len(puts) != 1 {
			s.Errorf("the autoscaler has written the MachineDeployment at %v, want once", puts)
		}
	})
	s.proves("CA-05", func(s *space) {
		a := s.scaler(3, pool)
		s.running(pool, 2)
		s.joined()
		found, err := a.instances(s.Context(), pool)
		s.must(err)
		machines, err := s.machines(s.Context(), pool)
		s.must(err)
		for _, m := range machines {
			node, err := s.lab.Target.CoreV1().Nodes().Get(s.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			s.must(err)
			if found[m.Name].ID != node.Spec.ProviderID || path.Base(node.Spec.ProviderID) != path.Base(m.Spec.ProviderID) {
				s.Errorf("machine %s is VM %s, its Node %s, its instance %+v", m.Name, m.Spec.ProviderID, node.Spec.ProviderID, found[m.Name])
			}
			var of grouped
			if a.do(&of, "group-of-node", node.Name); of != (grouped{pool, m.Name}) {
				s.Errorf("Node %s is of %+v, want machine %s of %s", node.Name, of, m.Name, pool)
			}
		}
	})
	s.proves("CA-09", func(s *space) { s.lastOperations(film) })
}

// requestedUntilTheyJoin checks the instances of a pool whose VMs never join: their user data has no bootstrap token.
func (s *space) requestedUntilTheyJoin() {
	s.Helper()
	const pool = "never-joins"
	s.createSecret(pool, map[string]string{v1alpha1.SecretKeyUserData: "#!/bin/sh\n"})
	s.createClass(pool)
	s.deploy(pool, 2, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = pool })
	s.eventually("the VMs of "+pool+" are created", func(ctx context.Context) error {
		machines, err := s.machines(ctx, pool)
		if err != nil {
			return err
		}
		var wrong complaints
		wrong.unless(len(machines) == 2, "there are %d machines", len(machines))
		for _, m := range machines {
			wrong.unless(m.Spec.ProviderID != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachinePending,
				"machine %s has the VM %q and is %q", m.Name, m.Spec.ProviderID, m.Status.CurrentStatus.Phase) // two writes, one after the other
		}
		return wrong.err()
	})
	found, err := s.scaler(3, pool).instances(s.Context(), pool)
	s.must(err)
	if len(found) != 2 {
		s.Errorf("there are %d instances, want 2", len(found))
	}
	for name, i := range found {
		if i.ID != "requested://"+name || !i.Creating || i.Error != nil {
			s.Errorf("the instance of machine %s is %+v, want requested://%s, which is being created", name, i, name)
		}
	}
	s.remove("machinedeployments", pool)
	s.eventually("the machines of "+pool+" are deleted", func(ctx context.Context) error {
		machines, err := s.machines(ctx, pool)
		if err == nil && len(machines) > 0 {
			err = fmt.Errorf("%d are left", len(machines))
		}
		return err
	})
}

// lastOperations checks that the last operation of machines is Create until they run, and HealthCheck from then on.
func (s *space) lastOperations(film *recording) {
	s.Helper()
	machines, _ := shown[*v1alpha1.Machine](s, film)
	created, joined := map[string]bool{}, map[string]bool{}
	for _, m := range machines {
		op := m.Status.LastOperation
		created[m.Name] = created[m.Name] || op.Type == v1alpha1.MachineOperationCreate
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			joined[m.Name] = true
			if op.Type != v1alpha1.MachineOperationHealthCheck || op.State != v1alpha1.MachineStateSuccessful {
				s.Errorf("machine %s runs, and its last operation is %+v", m.Name, op)
			}
		} else if op.Type != "" && op.Type != v1alpha1.MachineOperationCreate {
			s.Errorf("machine %s is %s, and its last operation is %+v", m.Name, m.Status.CurrentStatus.Phase, op)
		}
	}
	if len(joined) != 2 {
		s.Errorf("%d machines were seen to join, want 2", len(joined))
	}
	for name := range joined {
		if !created[name] {
			s.Errorf("machine %s was not seen while it was created", name)
		}
	}
}

// autoscalerIsOutOfResources requests machines that the cloud does not have, and removes them again.
func (s *space) autoscalerIsOutOfResources() {
	s.fault("sim-3a", cloudapi.FaultNoCapacity)
	s.deploy("pool", 0)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	s.scaler(3, "pool").resize("increase-size", "pool", 2, 2)
	s.proves("CA-06", func(s *space) {
		a := s.scaler(3, "pool")
		form := regexp.MustCompile(`^Cloud provider message - machine codes error: code = \[ResourceExhausted\] message = \[.+\]$`)
		s.eventually("the instances are out of resources", func(ctx context.Context) error {
			found, err := a.instances(ctx, "pool")
			if err != nil {
				return err
			}
			var wrong complaints
			wrong.unless(len(found) == 2, "there are %d instances", len(found))
			for _, i := range found {
				wrong.unless(i.Creating && i.Error != nil && i.Error.Class == "OutOfResources" && i.Error.Code == driver.ResourceExhausted.String() &&
					form.MatchString(i.Error.Message), "%+v %+v", i, i.Error)
			}
			return wrong.err()
		})
		machines, err := s.machines(s.Context(), "pool")
		s.must(err)
		var requested []string
		for _, m := range machines {
			requested = append(requested, "requested://"+m.Name)
			calls := s.calls(cloudapi.OpCreateInstance, []string{string(m.UID)})[string(m.UID)]
			if len(calls) != 1 {
				s.Fatalf("machine %s was requested %d times before its failure was reported, want once", m.Name, len(calls))
			}
			var backoff struct{ At time.Time }
			s.must(json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationBackoff]), &backoff))
			if wait := backoff.At.Sub(calls[0].End); wait < 590*time.Second {
				s.Errorf("machine %s is retried after %s, want at least 10 min", m.Name, wait)
			}
		}
		a.deletes("pool", sized{Deleted: s.machineNames("pool"), Writes: 1}, requested...)
		s.counted("pool", 0)
		if made := len(s.history()); made != 0 {
			s.Errorf("the cloud has made %d VMs", made)
		}
	})
}

// autoscalerSeesErrors: creates fail with other codes than ResourceExhausted, two of them at the endpoints of clouds that reject
// them.
func (s *space) autoscalerSeesErrors(absent, late string) {
	kinds := map[string]struct {
		providerSpec string
		fault        cloudapi.FaultKind
		endpoint     string
		code         string
	}{
		"internal":     {providerSpec: `{"zone":"sim-3b"}`, fault: cloudapi.FaultInternal, code: "Internal"},
		"unavailable":  {providerSpec: `{"zone":"sim-3c"}`, fault: cloudapi.FaultUnavailable, code: "Unavailable"},
		"unauthorized": {providerSpec: `{"zone":"sim-3d"}`, fault: cloudapi.FaultUnauthorized, code: "Unauthenticated"},
		"forbidden":    {providerSpec: `{"zone":"sim-3e"}`, fault: cloudapi.FaultForbidden, code: "PermissionDenied"},
		"invalid":      {providerSpec: `{"instanceType":"huge-1"}`, code: "InvalidArgument"},
		"not-found":    {endpoint: absent, code: "NotFound"},
		"too-late":     {endpoint: late, code: "DeadlineExceeded"},
	}
	for pool, kind := range kinds {
		class := harness.Class(s.name, kind.providerSpec)
		class.Name = pool
		if kind.endpoint != "" {
			s.createSecret(pool, map[string]string{simulated.SecretEndpoint: kind.endpoint})
			class.CredentialsSecretRef = &corev1.SecretReference{Name: pool, Namespace: s.name}
		}
		_, err := s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
		s.must(err)
		if kind.fault != "" {
			s.fault(kind.providerSpec[len(`{"zone":"`):len(kind.providerSpec)-2], kind.fault)
		}
		s.deploy(pool, 1, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = pool })
	}
	s.proves("CA-07", func(s *space) {
		for pool, kind := range kinds {
			s.eventually(pool+" fails with "+kind.code, func(ctx context.Context) error {
				found, err := s.scaler(3, pool).instances(ctx, pool)
				if err != nil {
					return err
				}
				var wrong complaints
				wrong.unless(len(found) == 1, "there are %d instances", len(found))
				for _, i := range found {
					wrong.unless(i.Creating && i.Error != nil && i.Error.Class == "Other" && i.Error.Code == kind.code, "%+v %+v", i, i.Error)
				}
				return wrong.err()
			})
		}
	})
	s.must(s.api().MachineDeployments(s.name).DeleteCollection(s.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.gone()
}

// refuser starts a cloud that has no VM and rejects creates, and returns its endpoint.
func refuser(t *testing.T, status int, answer string) string {
	t.Helper()
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // it finds nothing, and deletes what it does not have
			_, _ = w.Write([]byte("{}"))
			return
		}
		http.Error(w, answer, status)
	}))
	t.Cleanup(cloud.Close)
	return cloud.URL
}

// autoscalerSeesFailed: a create fails repeatedly. Between its retries it stays failed, or else a loop of the cluster-autoscaler
// might miss the failure.
func (s *space) autoscalerSeesFailed() {
	end := s.fault("sim-3f", cloudapi.FaultInternal)
	film := s.film()
	s.deploy("pool", 1)
	s.proves("CA-08", func(s *space) {
		s.counted("pool", 1)
		s.tried(cloudapi.OpCreateInstance, 3, s.ids("pool"))
		machines, _ := shown[*v1alpha1.Machine](s, film)
		failed := 0
		for _, m := range machines {
			op := m.Status.LastOperation
			switch {
			case op.Type == v1alpha1.MachineOperationCreate && op.State == v1alpha1.MachineStateFailed:
				failed++
			case failed > 0:
				s.Errorf("it had failed, and reports %+v", op)
			}
		}
		if failed == 0 {
			s.Error("it never reports that it has failed")
		}
		end()
	})
}

// autoscalerReadsTemplates scales a pool up from zero, and changes the template of its Nodes.
func (s *space) autoscalerReadsTemplates() {
	class := `{"nodeTemplate":{"capacity":{"cpu":"4","gpu":"0","memory":"16Gi","example.com/dongle":"1"},"instanceType":"standard-4",` +
		`"region":"sim-1","zone":"sim-1a","architecture":"arm64","virtualCapacity":{"example.com/dongle":"2"},"ofTheFuture":{"is":"kept"}}}`
	s.patch("machineclasses", harness.ClassName, class)
	s.deploy("pool", 0, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": s.name}
	})
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	film := s.film()
	s.proves("CA-23", func(s *space) {
		a := s.scaler(3, "pool")
		var of nodeLike
		a.do(&of, "template-node", "pool")
		dongles := of.Capacity[dongle]
		if of.From != "" || of.Capacity.Cpu().String() != "4" || dongles.String() != "2" || of.InstanceType != "standard-4" || of.Region != "sim-1" ||
			of.Zone != "sim-1a" || of.Labels[corev1.LabelArchStable] != "arm64" || of.Labels["worker.gardener.cloud/pool"] != s.name {
			s.Errorf("a Node would be like %+v", of)
		}
		a.resize("increase-size", "pool", 2, 2)
		s.running("pool", 2)
		raw, err := s.api().RESTClient().Get().Namespace(s.name).Resource("machineclasses").Name(harness.ClassName).Do(s.Context()).Raw()
		s.must(err)
		var after struct {
			Metadata     metav1.ObjectMeta
			NodeTemplate map[string]any
		}
		s.must(json.Unmarshal(raw, &after))
		if kept := fmt.Sprint(after.NodeTemplate["ofTheFuture"]); !slices.Contains(after.Metadata.Finalizers, v1alpha1.FinalizerName) || kept != "map[is:kept]" {
			s.Errorf("the fleet has written its finalizer (%v), and of a field that it does not know is left: %s", after.Metadata.Finalizers, kept)
		}
		a.do(&of, "template-node", "pool")
	})
	s.proves("CA-24", func(s *space) {
		s.onNodes("the Nodes have the virtual capacity", "pool", func(n *corev1.Node, wrong *complaints) {
			got, noted := n.Status.Capacity[dongle], n.Annotations[v1alpha1.AnnotationLastAppliedVirtualCapacity]
			wrong.unless(got.Cmp(resource.MustParse("2")) == 0 && strings.Contains(noted, string(dongle)), "%s has %s, and notes %q", n.Name, got.String(), noted)
		})
	})
	s.proves("CA-25", func(s *space) {
		before := s.joined()
		s.patch("machinedeployments", "pool", `{"spec":{"template":{"spec":{"nodeTemplate":{"metadata":{"labels":{"added":"yes"},"annotations":{"noted":"yes"}},`+
			`"spec":{"taints":[{"key":"tainted","value":"yes","effect":"PreferNoSchedule"}]}}}}}}`)
		s.onNodes("the Nodes match the template", "pool", func(n *corev1.Node, wrong *complaints) {
			noted := n.Annotations[v1alpha1.AnnotationLastAppliedNodeTemplate]
			wrong.unless(n.Labels["added"] == "yes" && n.Annotations["noted"] == "yes" && hasTaint(n, "tainted", "yes") && strings.Contains(noted, "tainted"),
				"%s: %v %v %v", n.Name, n.Labels, n.Annotations, n.Spec.Taints)
		})
		s.hasSets(1)
		s.turnover(film, "pool", len(before))
		s.always(film, "no rollout", func(d *v1alpha1.MachineDeployment) bool { return progress(d) == progressDone })
		var of nodeLike
		s.scaler(3, "pool").do(&of, "template-node", "pool")
		if of.Labels["added"] != "yes" || len(of.Taints) != 1 {
			s.Errorf("a Node would be like %+v", of)
		}
	})
}

// always checks every version of a MachineDeployment in a film.
func (s *space) always(film *recording, what string, is func(*v1alpha1.MachineDeployment) bool) {
	s.Helper()
	versions, _ := shown[*v1alpha1.MachineDeployment](s, film)
	for _, d := range versions {
		if !is(d) {
			s.Errorf("%s: MachineDeployment %s has %d replicas, the annotations %v and the conditions %v", what, d.Name, d.Spec.Replicas, d.Annotations, d.Status.Conditions)
		}
	}
}
