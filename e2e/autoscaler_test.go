//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestAutoscaler runs a double of the cluster-autoscaler, which reads, decides and writes like the original, and checks the
// reaction of the fleet. Each case of docs/autoscaler.md is a subtest, by its number.
func TestAutoscaler(t *testing.T) {
	absent := refuser(t, http.StatusNotFound, fmt.Sprintf(`{"code":%q}`, cloudapi.CodeNotFound))
	late := refuser(t, http.StatusGatewayTimeout, "from a proxy")
	t.Parallel()
	lab := startLab(t, "autoscaler", func(o *harness.Options) {
		o.Replicas, o.CloudEndpoints = 2, []string{absent, late}
	})
	if err := held(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	t.Run("Beside", func(t *testing.T) {
		for name, test := range map[string]struct {
			providerSpec string
			cases        func(*space)
		}{
			"grow":      {"", (*space).autoscalerGrows},
			"exhausted": {`{"zone":"sim-3a"}`, (*space).autoscalerIsOutOfResources},
			"errors":    {"", func(s *space) { s.autoscalerSeesErrors(absent, late) }},
			"flap":      {`{"zone":"sim-3f"}`, (*space).autoscalerSeesFailed},
			"shrink":    {"", (*space).autoscalerShrinks},
			"older":     {"", (*space).olderAutoscalersShrink},
			"exempt":    {"", (*space).autoscalerLeavesAlone},
			"roll":      {`{"zone":"sim-3g"}`, (*space).autoscalerDuringRollout},
			"recreate":  {"", (*space).autoscalerDuringRecreate},
			"in-place":  {"", (*space).autoscalerDuringUpdate},
			"pause":     {"", (*space).autoscalerResizesWhatIsPaused},
			"resize":    {`{"zone":"sim-3h"}`, (*space).autoscalerResizes},
			"template":  {"", (*space).autoscalerReadsTemplates},
			"objects":   {"", (*space).autoscalerReadsObjects},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test.cases(newSpace(t, lab, "ca-"+name, test.providerSpec))
			})
		}
	})
	// These stop replicas, or delay their requests.
	t.Run("Late", func(t *testing.T) { newSpace(t, lab, "ca-late", "").autoscalerMeetsALateFleet() })
	t.Run("HandOver", func(t *testing.T) { newSpace(t, lab, "ca-hand-over", "").autoscalerMeetsAHandOver() })
}

// proves runs one case, or some with the same actions.
func (s *space) proves(cases string, do func(s *space)) {
	s.Helper()
	if !s.Run(cases, func(t *testing.T) { do(s.in(t)) }) {
		s.FailNow() // the next cases need it
	}
}

// The answers of the autoscaler's double; see e2e/autoscaler.
type (
	sized struct {
		Replicas int32
		Deleted  []string
		Skipped  map[string]string
		Writes   int
	}
	instance struct {
		ID, Machine string
		Creating    bool
		Error       *struct{ Class, Code, Message string }
	}
	grouped  struct{ Group, Machine string }
	nodeLike struct {
		Capacity                         corev1.ResourceList
		Labels                           map[string]string
		Taints                           []corev1.Taint
		InstanceType, Region, Zone, From string
	}
)

// The reasons why it rejects an operation.
const (
	refusedRolling    = "machines are being replaced"
	refusedOtherGroup = "the Node is of another node group"
	refusedNoOwner    = "the machine has no owner"
)

// scaler is the autoscaler's double, for some node groups of the test's namespace.
type scaler struct {
	*space

	generation int
	pools      []string
}

// scaler returns a double of the given generation.
func (s *space) scaler(generation int, pools ...string) *scaler {
	return &scaler{s, generation, pools}
}

// query runs one command. A rejection has a reason; every other failure is an error.
func (a *scaler) query(ctx context.Context, answer any, args ...string) (refused string, err error) {
	bin, err := harness.Bin()
	if err != nil {
		return "", err
	}
	all := []string{
		"--control-kubeconfig=" + filepath.Join(a.lab.Dir, "admin.kubeconfig"), "--target-kubeconfig=" + filepath.Join(a.lab.Dir, "target.kubeconfig"),
		fmt.Sprintf("--generation=%d", a.generation),
	}
	for _, pool := range a.pools {
		all = append(all, fmt.Sprintf("--nodes=0:10:%s.%s", a.name, pool))
	}
	var output strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "autoscaler"), append(all, args...)...)
	cmd.Stdout = &output
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 1 {
		var why struct{ Error, Refusal string }
		if broken := json.Unmarshal([]byte(output.String()), &why); broken != nil {
			return "", fmt.Errorf("autoscaler %v: %w: %q", args, err, output.String())
		}
		if why.Refusal != "" {
			return why.Refusal, nil
		}
		return "", errors.New(why.Error)
	}
	if err != nil {
		return "", fmt.Errorf("autoscaler %v: %w; hack/test.sh e2e builds it", args, err)
	}
	return "", json.Unmarshal([]byte(output.String()), answer)
}

// do runs a command that must not be rejected.
func (a *scaler) do(answer any, args ...string) {
	a.Helper()
	refused, err := a.query(a.Context(), answer, args...)
	a.must(err)
	if refused != "" {
		a.Fatalf("autoscaler %v: refused, since %s", args, refused)
	}
}

// refuses runs a command that must be rejected.
func (a *scaler) refuses(want string, args ...string) {
	a.Helper()
	refused, err := a.query(a.Context(), new(json.RawMessage), args...)
	a.must(err)
	if refused != want {
		a.Errorf("autoscaler %v: refused since %q, want %q", args, refused, want)
	}
}

// resize changes the size of a pool in one write.
func (a *scaler) resize(command, pool string, by int, want int32) {
	a.Helper()
	var got sized
	a.do(&got, command, pool, fmt.Sprint(by))
	if diff := cmp.Diff(sized{Replicas: want, Writes: 1}, got); diff != "" {
		a.Errorf("%s %s %d (-want +got):\n%s", command, pool, by, diff)
	}
}

// deletes deletes machines of a pool by their Nodes, and compares the result. Nodes of the lab have the names of their machines.
func (a *scaler) deletes(pool string, want sized, nodes ...string) {
	a.Helper()
	var got sized
	a.do(&got, append([]string{"delete-nodes", pool}, nodes...)...)
	if diff := cmp.Diff(want, got); diff != "" {
		a.Errorf("delete-nodes %s %v (-want +got):\n%s", pool, nodes, diff)
	}
}

// instances gets the instances of a pool, by machine.
func (a *scaler) instances(ctx context.Context, pool string) (map[string]instance, error) {
	var all []instance
	refused, err := a.query(ctx, &all, "nodes", pool)
	if refused != "" {
		err = errors.New(refused)
	}
	found := map[string]instance{}
	for _, i := range all {
		found[i.Machine] = i
	}
	return found, err
}

// film records all versions of the machines, MachineSets and MachineDeployments of the namespace, and of all Nodes.
func (s *space) film() *recording {
	s.Helper()
	r := &recording{}
	machines, sets, deployments := s.api().Machines(s.name), s.api().MachineSets(s.name), s.api().MachineDeployments(s.name)
	nodes := s.lab.Target.CoreV1().Nodes()
	follow(s, r, machines.List, machines.Watch)
	follow(s, r, sets.List, sets.Watch)
	follow(s, r, deployments.List, deployments.Watch)
	follow(s, r, nodes.List, nodes.Watch)
	return r
}

// shown returns what a film shows of one kind of objects, without their initial versions.
func shown[T metav1.Object](s *space, film *recording) (objects []T, moments []moment) {
	s.Helper()
	all, err := film.play()
	s.must(err)
	for _, m := range all {
		if object, is := m.object.(T); is && !m.listed {
			objects, moments = append(objects, object), append(moments, m)
		}
	}
	return objects, moments
}

// turnover waits until a film shows that these machines of a pool are gone, and checks that no others are, and that not more than
// expected were created.
func (s *space) turnover(film *recording, pool string, came int, gone ...string) {
	s.Helper()
	slices.Sort(gone)
	s.eventually(fmt.Sprintf("%v are gone", gone), func(context.Context) error {
		added, deleted := s.comings(film, pool)
		if len(added) != came || !slices.Equal(deleted, gone) {
			return fmt.Errorf("%v have come and %v are gone, want %d and %v", added, deleted, came, gone)
		}
		return nil
	})
}

// comings returns the names of the machines of a pool that were created during a film, and of those that were deleted.
func (s *space) comings(film *recording, pool string) (came, gone []string) {
	s.Helper()
	machines, moments := shown[*v1alpha1.Machine](s, film)
	all, err := film.play()
	s.must(err)
	known := map[string]bool{}
	for _, m := range all {
		if machine, is := m.object.(*v1alpha1.Machine); is && m.listed {
			known[machine.Name] = true
		}
	}
	for i, m := range machines {
		if m.Labels[v1alpha1.LabelName] != pool {
			continue
		}
		if !known[m.Name] {
			known[m.Name] = true
			came = append(came, m.Name)
		}
		if moments[i].gone {
			gone = append(gone, m.Name)
		}
	}
	slices.Sort(gone)
	return came, gone
}

// deployment reads a MachineDeployment.
func (s *space) deployment(name string) *v1alpha1.MachineDeployment {
	s.Helper()
	d, err := s.api().MachineDeployments(s.name).Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return d
}

// names are those of the machines of a pool, in order.
func (s *space) machineNames(pool string) []string {
	s.Helper()
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	var all []string
	for _, m := range machines {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return all
}

// progress is the condition Progressing of a MachineDeployment: status/reason, "" when there is none.
func progress(d *v1alpha1.MachineDeployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == v1alpha1.MachineDeploymentProgressing {
			return string(c.Status) + "/" + c.Reason
		}
	}
	return ""
}

const progressDone = "True/" + v1alpha1.ReasonNewMachineSetAvailable

// deploymentWrites counts the writes of MachineDeployments of the namespace since the position, that were accepted: by the fleet,
// without the status and of the status. Of those by the autoscaler it returns the times.
func (s *space) deploymentWrites(since harness.AuditPosition) (main, status int, scaler []time.Time) {
	s.Helper()
	requests, err := s.lab.Requests(since)
	s.must(err)
	for _, r := range requests {
		if r.Namespace != s.name || r.Resource != "machinedeployments" || !r.IsWrite() || r.Code >= 300 {
			continue
		}
		switch {
		case strings.HasPrefix(r.UserAgent, "cluster-autoscaler"):
			scaler = append(scaler, r.At)
		case r.IsFleet() && r.Subresource == "status":
			status++
		case r.IsFleet():
			main++
		}
	}
	return main, status, scaler
}

// auditEnd is the current end of the audit logs.
func (s *space) auditEnd() harness.AuditPosition {
	s.Helper()
	position, err := s.lab.AuditEnd()
	s.must(err)
	return position
}
