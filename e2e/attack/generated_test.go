//go:build e2e

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// attackTime is how long attacks are drawn; ATTACK_TIME sets another time.
	attackTime = time.Minute
	// attackInterval is between two of them: so short that the fleet is always busy, and so long that
	// other tenants are served.
	attackInterval = 40 * time.Millisecond
	// ownNames is how many objects of a kind the attacker has at most: so few that each is changed
	// many times.
	ownNames = 12
	// remembered is how many of the last attacks are shown when one has succeeded.
	remembered = 60
)

// generator draws legal and illegal objects and changes of them.
type generator struct {
	*tenant

	dice     *rand.Rand
	sources  []string // names of the victim's objects, or of none
	last     []string // the last attacks
	accepted map[string]int
	refused  map[string]int
	refusal  map[string]error // the last
}

// generated runs random attacks, concurrently with the others of this package, while machines of
// another namespace are created. It checks what must never change of the victim.
func generated(a *tenant) {
	lasts, seed := attackTime, uint64(time.Now().UTC().YearDay())
	var err error
	if text := os.Getenv("ATTACK_TIME"); text != "" {
		lasts, err = time.ParseDuration(text)
		a.must(err)
	}
	if text := os.Getenv("SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		a.must(err)
	}
	a.Logf("ATTACK_TIME=%s SEED=%d", lasts, seed)
	g := &generator{
		tenant: a, dice: rand.New(rand.NewPCG(seed, 1)), accepted: map[string]int{}, refused: map[string]int{}, refusal: map[string]error{},
	}
	for _, m := range a.victim.machines {
		g.sources = append(g.sources, m.Name, m.Namespace, string(m.UID), m.Spec.ProviderID, m.Namespace+"/"+m.Name+"/"+string(m.UID), nodeOf(&m))
	}
	g.sources = append(g.sources, a.victim.nodes()...)
	g.sources = append(g.sources, a.victim.vm.ProviderID, adminToken, metav1.NamespaceSystem, string(a.victim.set.UID), a.victim.set.Name,
		"", "true", "True", "now", "when-failed", "-1", "0", "1", "2147483648", "1e309", "2126-01-01T00:00:00Z", "soon", "null", "{}", "[]", `"`,
		`{"a":`,
		"../../x", "a/b/c", "\u202e\x00", strings.Repeat("x", 300), strings.Repeat("[", 5000), a.cloud.endpoint("thief"), a.cloud.elsewhere.URL)

	a.mayWriteNotes()
	namespace, _ := a.neighbour("")
	a.class("unchanged", "")
	a.deploy(a.named("base"), 2, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "unchanged" })
	ctx, stop := context.WithTimeout(a.ctx, lasts+harness.Standstill)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- g.run(ctx, lasts) }()
	var longest time.Duration
	served := 0
	for ended := false; !ended; served++ {
		longest = max(longest, a.timeToRun(namespace, fmt.Sprint("served-", served)))
		a.must(a.lab.Machines.MachineV1alpha1().Machines(namespace).Delete(a.ctx,
			fmt.Sprintf("served-%d-%s", served, namespace), metav1.DeleteOptions{}))
		select {
		case err := <-done:
			if ended = true; err != nil {
				a.Errorf("%v\nafter these attacks:\n%s", err, strings.Join(g.last, "\n"))
			}
		default:
		}
	}
	a.Logf("accepted %v, rejected %v; %d machines of another namespace were created meanwhile, each in up to %s",
		g.accepted, g.refused, served, longest)
	for verb, err := range g.refusal {
		a.Logf("the last rejected %s: %.300v", verb, err)
	}
	if verbs := g.untested(); len(verbs) > 0 {
		a.Errorf("no %v was accepted, so that it was not tested", verbs)
	}
}

// untested are the kinds of attacks of which the API server has accepted none.
func (g *generator) untested() []string {
	return slices.DeleteFunc([]string{"create", "change", "status", "delete", "secret", "kubelet"}, func(verb string) bool {
		return g.accepted[verb] > 0
	})
}

// run attacks for a time, and on a busy computer until one attack of each kind was accepted; or
// until ctx ends, or the victim has changed.
func (g *generator) run(ctx context.Context, lasts time.Duration) error {
	end := time.Now().Add(lasts)
	tick := time.NewTicker(attackInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return g.victim.verdict(g.ctx)
		case <-tick.C:
		}
		if time.Now().After(end) && len(g.untested()) == 0 {
			return g.victim.verdict(g.ctx)
		}
		if err := g.attack(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if i%50 == 0 {
			if err := g.victim.verdict(g.ctx); err != nil {
				return err
			}
		}
	}
}

// attack sends one request. The API server may reject it.
func (g *generator) attack(ctx context.Context) error {
	kind := kinds[g.dice.IntN(len(kinds))]
	name := fmt.Sprint("own-", g.dice.IntN(ownNames))
	// In the lab, a VM takes over the Node that has its name. Elsewhere, the approver of its
	// certificate denies the request: tokenForAnotherNode.
	if text := g.text(); g.dice.IntN(8) == 0 && !slices.Contains(g.victim.nodes(), text) {
		name = text
	}
	rest := g.api.RESTClient()
	var verb, body string
	var err error
	switch g.dice.IntN(10) {
	case 0, 1, 2:
		verb, body = "create", encode(g.object(kind, name))
		err = rest.Post().Namespace(g.namespace).Resource(kind).Body([]byte(body)).Do(ctx).Error()
	case 3, 4, 5:
		verb, body = "change", encode(g.object(kind, ""))
		err = rest.Patch(types.MergePatchType).Namespace(g.namespace).Resource(kind).Name(name).Body([]byte(body)).Do(ctx).Error()
	case 6:
		verb, body = "status", encode(map[string]any{"status": g.status(kind)})
		err = rest.Patch(types.MergePatchType).Namespace(g.namespace).Resource(kind).Name(name).SubResource("status").Body([]byte(body)).Do(ctx).
			Error()
	case 7:
		verb = "delete"
		err = rest.Delete().Namespace(g.namespace).Resource(kind).Name(name).Do(ctx).Error()
	case 8:
		verb, kind = "secret", "secrets"
		body = encode(map[string]any{"metadata": g.metadata(), "stringData": map[string]any{
			v1alpha1.SecretKeyUserData: g.pick(harness.UserData, "", g.text()), "endpoint": g.pick("", g.cloud.endpoint(g.lie()), g.text()),
			"token": g.text(),
		}})
		name = harness.ClassName
		_, err = g.secrets.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) { // with an owner that does not exist Kubernetes has deleted it
			_, err = g.secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		}
	default:
		verb, kind = "kubelet", "nodes"
		name, body, err = g.asKubelet(ctx)
	}
	g.last = append(g.last[max(len(g.last)-remembered, 0):], fmt.Sprintf("%s %s %s %s: %v", verb, kind, name, body, err))
	_, isAnswer := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		g.accepted[verb]++
	case isAnswer, strings.Contains(err.Error(), "resource name may not"), strings.Contains(err.Error(), "invalid"):
		g.refused[verb]++
		g.refusal[verb] = err
	default:
		return fmt.Errorf("%s %s %s: %w", verb, kind, name, err)
	}
	return nil
}

// asKubelet writes on the Node of a machine of the attacker's.
func (g *generator) asKubelet(ctx context.Context) (name, body string, err error) {
	list, err := g.lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return "", "", err
	}
	own := slices.DeleteFunc(list.Items, func(node corev1.Node) bool { return !strings.HasPrefix(node.Name, g.namespace) })
	if len(own) == 0 {
		return "", "", nil
	}
	name = own[g.dice.IntN(len(own))].Name
	nodes := g.kubelet(name).CoreV1().Nodes()
	if g.dice.IntN(3) == 0 {
		body = encode(map[string]any{"status": map[string]any{
			"conditions": []any{map[string]any{
				"type": g.pick("Ready", "Terminating", "InPlaceUpdate", "KernelDeadlock"), "status": g.pick("True", "False", "Unknown"),
				"reason": "Drawn", "message": g.text(),
			}},
			"capacity":    map[string]any{"example.com/" + g.pick("gpu", "tpu"): g.pick("1", "0")},
			"allocatable": map[string]any{"cpu": g.pick("1", "64")},
		}})
		_, err = nodes.Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
		return name, body, err
	}
	body = encode(map[string]any{"metadata": map[string]any{"labels": g.labels(), "annotations": g.annotations()}})
	_, err = nodes.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return name, body, err
}

func encode(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		return "{}" // it consists of maps and texts
	}
	return string(text)
}

func (g *generator) pick(texts ...string) string { return texts[g.dice.IntN(len(texts))] }

func (g *generator) text() string { return g.pick(g.sources...) }

// label returns a text that can be the value of a label, mostly.
func (g *generator) label() string {
	for range 3 {
		if text := g.text(); len(validation.IsValidLabelValue(text)) == 0 {
			return text
		}
	}
	return g.pick("True", "/")
}

func (g *generator) lie() string {
	return g.pick("working", "thief", "verbose", "traversal", "deep", "redirect", "page")
}

// maybe returns a value, or none.
func (g *generator) maybe(object map[string]any, key string, value func() any) {
	if g.dice.IntN(3) == 0 {
		object[key] = value()
	}
}

// object is one of a kind, or with no name a change of one.
func (g *generator) object(kind, name string) map[string]any {
	metadata := g.metadata()
	object := map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "metadata": metadata}
	object["kind"] = map[string]string{
		"machines": "Machine", "machinesets": "MachineSet", "machinedeployments": "MachineDeployment", "machineclasses": "MachineClass",
	}[kind]
	if name != "" {
		metadata["name"] = name
	}
	switch kind {
	case "machines":
		object["spec"] = g.machineSpec()
	case "machineclasses":
		object["provider"] = g.pick("simulated", "simulated", g.text())
		object["providerSpec"] = map[string]any{"zone": g.pick("sim-1a", "sim-1b", g.text())}
		for _, ref := range []string{"secretRef", "credentialsSecretRef"} {
			g.maybe(object, ref, func() any {
				return map[string]any{
					"name": g.pick(harness.ClassName, adminToken, g.text()), "namespace": g.pick(g.namespace, metav1.NamespaceSystem, victimNamespace),
				}
			})
		}
	default:
		labels := map[string]any{v1alpha1.LabelName: g.pick("own-1", "pool", g.label())}
		spec := map[string]any{
			"replicas": g.dice.IntN(4), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels, "annotations": g.annotations()}, "spec": g.machineSpec()},
		}
		g.maybe(spec, "replicas", func() any { return []any{-1, 0, 2147483647, "3", nil}[g.dice.IntN(5)] })
		g.maybe(spec, "minReadySeconds", func() any { return []any{-1, 0, 2147483647}[g.dice.IntN(3)] })
		g.maybe(spec, "autoPreserveFailedMachineMax", func() any { return []any{-3, 1, 2147483647}[g.dice.IntN(3)] })
		g.maybe(spec, "paused", func() any { return g.dice.IntN(2) == 0 })
		g.maybe(spec, "strategy", func() any {
			update := map[string]any{"maxSurge": []any{-1, 1, "200%", "x"}[g.dice.IntN(4)], "maxUnavailable": []any{0, 1, "50%"}[g.dice.IntN(3)]}
			return map[string]any{
				"type": g.pick("RollingUpdate", "Recreate", "InPlaceUpdate", "Other"), "rollingUpdate": update, "inPlaceUpdate": update,
			}
		})
		object["spec"] = spec
	}
	return object
}

func (g *generator) machineSpec() map[string]any {
	spec := map[string]any{
		"class": map[string]any{"kind": "MachineClass", "name": g.pick(harness.ClassName, harness.ClassName, "own-1", g.text())},
	}
	g.maybe(spec, "providerID", func() any { return g.text() })
	g.maybe(spec, "drainTimeout", func() any { return g.pick("1s", "0s", "-1h", "876000h", "soon") })
	g.maybe(spec, "healthTimeout", func() any { return g.pick("1s", "0s", "-1h") })
	g.maybe(spec, "creationTimeout", func() any { return g.pick("1s", "876000h", "-1h") })
	g.maybe(spec, "maxEvictRetries", func() any { return []any{-1, 0, 2147483647}[g.dice.IntN(3)] })
	g.maybe(spec, "nodeTemplate", func() any {
		return map[string]any{
			"metadata": map[string]any{"labels": g.labels(), "annotations": g.annotations()},
			"spec": map[string]any{"taints": []any{map[string]any{
				"key": g.pick(quarantine, "node.kubernetes.io/unreachable", g.text()), "value": g.text(),
				"effect": g.pick("NoSchedule", "NoExecute", "Other"),
			}}},
		}
	})
	return spec
}

func (g *generator) metadata() map[string]any {
	metadata := map[string]any{"labels": g.labels(), "annotations": g.annotations()}
	g.maybe(metadata, "ownerReferences", func() any {
		return []any{map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": g.pick("MachineSet", "MachineDeployment", "Machine"),
			"name": g.pick(g.victim.set.Name, "own-1", "gone"), "uid": g.pick(string(g.victim.set.UID), "gone"),
			"controller": g.dice.IntN(2) == 0, "blockOwnerDeletion": g.dice.IntN(2) == 0,
		}}
	})
	g.maybe(metadata, "finalizers", func() any {
		return [][]string{
			nil, {v1alpha1.FinalizerName}, {v1alpha1.SecretFinalizerName}, {"example.com/" + g.pick("hold", "keep")},
		}[g.dice.IntN(4)]
	})
	return metadata
}

func (g *generator) labels() map[string]any {
	labels := map[string]any{}
	for _, key := range []string{
		v1alpha1.LabelNode, v1alpha1.LabelName, v1alpha1.LabelMachineTemplateHash, v1alpha1.LabelFreeze, v1alpha1.LabelForceDeletion,
		v1alpha1.LabelForceDrain, v1alpha1.LabelSlot, v1alpha1.LabelMachineName, v1alpha1.LabelCandidateForUpdate,
		v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult, restrictedLabel, "kubernetes.io/hostname",
	} {
		if g.dice.IntN(5) == 0 {
			labels[key] = g.pick("True", g.label(), g.label(), strconv.Itoa(g.dice.IntN(slots)))
		}
	}
	return labels
}

func (g *generator) annotations() map[string]any {
	annotations := map[string]any{}
	for _, key := range []string{
		v1alpha1.AnnotationMachine, v1alpha1.AnnotationMachineUID, v1alpha1.AnnotationTokenOf, v1alpha1.AnnotationCreateSent,
		v1alpha1.AnnotationTokenLeft, v1alpha1.AnnotationBackoff, v1alpha1.AnnotationSetAside, v1alpha1.AnnotationReported,
		v1alpha1.AnnotationApplied, v1alpha1.AnnotationDisruptions, v1alpha1.AnnotationRolling, v1alpha1.AnnotationUpdateTo,
		v1alpha1.AnnotationSelecting, v1alpha1.AnnotationStrategy, v1alpha1.AnnotationIntents, v1alpha1.AnnotationOrdinal,
		v1alpha1.AnnotationUncordonAt, v1alpha1.AnnotationTraceparent, v1alpha1.AnnotationTriggerDeletion, v1alpha1.AnnotationPreserve,
		v1alpha1.AnnotationPriority, v1alpha1.AnnotationNotManaged, v1alpha1.AnnotationLastAppliedNodeTemplate,
		v1alpha1.AnnotationLastAppliedVirtualCapacity, v1alpha1.AnnotationEffectiveCreationTimeout,
		v1alpha1.AnnotationLastAppliedNodePreserveValue, v1alpha1.AnnotationSharedWith, v1alpha1.AnnotationRevision,
	} {
		if g.dice.IntN(8) == 0 {
			annotations[key] = g.pick(g.text(), g.text(), `{"labels":["`+restrictedLabel+`"],"taints":["`+quarantine+`:NoSchedule"]}`)
		}
	}
	return annotations
}

// status returns a possible status of an object of a kind.
func (g *generator) status(kind string) map[string]any {
	if kind != "machines" {
		return map[string]any{
			"replicas": g.dice.IntN(5) - 1, "readyReplicas": 2147483647, "observedGeneration": g.dice.IntN(100),
			"conditions": []any{map[string]any{
				"type": g.pick("CircuitBreakerOpen", "Progressing", "Frozen"), "status": "True",
				"reason": g.pick(v1alpha1.ReasonTargetNotReady, v1alpha1.ReasonZoneNotReady, "x"),
			}},
		}
	}
	return map[string]any{
		"currentStatus": map[string]any{
			"phase":          g.pick("", "Pending", "Running", "Unknown", "Failed", "Terminating", "CrashLoopBackOff", "x"),
			"lastUpdateTime": g.pick("2126-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
		},
		"lastOperation": map[string]any{
			"type": g.pick("Create", "Delete", "HealthCheck", "x"), "state": g.pick("Processing", "Failed", "Successful"), "description": g.text(),
			"errorCode": g.text(),
		},
		"addresses": []any{map[string]any{"type": "Hostname", "address": g.text()}},
	}
}
