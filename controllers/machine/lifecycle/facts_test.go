package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// facts are the keys that a scenario can set. The comment next to each is an example.
var facts = map[string]func(w *World, value string) error{
	"now":     setNow,       // now: 20m
	"machine": setMachine,   // machine: created; machine: {spec: {class: {name: ""}}} is merged into it
	"deleted": setDeleted,   // deleted: 5m
	"phase":   setPhaseFact, // phase: CrashLoopBackOff; phase: Pending since 21m
	"last":    setLast,      // last: Create Failed Internal since 5s
	"class":   setClass,     // class: none, not held, being deleted, without a driver; class: {nodeTemplate: {}}
	// secret: not read, missing, foreign, empty, too large for a VM; boot with
	// %3C%3CBOOTSTRAP_TOKEN%3E%3E is user data
	"secret": setSecret,
	"config": setConfig, // config: none; config: 40000 bytes; the one that the machine boots with
	// vm: absent, gone (as DeleteMachine has reported), uninitialized, present, ending since 1s, asked
	// 2s, hidden; vm: present {NodeName: ""}; vm: absent, another one left
	"vm":         setVM,
	"invalid":    setInvalid,     // invalid: the node name "x"; what is invalid about the driver's answer with the VM
	"note":       setNote,        // note: half of it; the driver has left it with its last answer, which vm or cloud gives
	"claims":     setOtherClaims, // claims: none for the Node, some for the VM; what a live list has shown
	"node":       setNode,        // node: named, absent, ready; more words change a Node that is there, see nodeWords
	"on node":    setOnNode,      // on node: {metadata: {labels: {a: b}}} is merged into the Node that is there
	"refused":    setRefused,     // refused: until 5m
	"fought":     setFought,      // fought: until 5s, the Node was written too often
	"servers":    setReach,       // servers: away since 5m; away since 5m, back since 15m; reached since 5m; of API servers
	"target":     setTarget,      // target: none; target: no Secret; why it is not available
	"drained":    setDrained,     // drained: running until 10s; see drainWords
	"disruption": setDisruption,  // disruption: allowed, unneeded
	"token":      setToken,       // token: present, absent
	"cloud":      setFailure,     // cloud: create_machine Internal; and retry-after 1m
	"backoff":    setBackoff,     // backoff: until 15s, step 10s, after Internal Unavailable, reported NotFound
	"trouble":    setPassError,   // trouble: PermissionDenied; an API server refuses something
	"evidence":   setEvidence,    // evidence: may be asked for; "the cloud has its VM"
	"drain":      setDrain,       // drain: going on, stuck, drained, given up; and "…" the text of its report
	"inputs":     setInputs,      // inputs: changed; class or secret, since the cloud failed
	"set":        setSet,         // set: old, new; without this line it is not seen
	// drain for update: going on, stuck, drained, given up; and "…" the text of its report
	"drain for update": setUpdateDrain,
}

func setReach(w *World, value string) error {
	for part := range strings.SplitSeq(value, ", ") {
		word, at, err := since(part)
		switch {
		case err != nil:
			return err
		case word == "away":
			w.Reach.Away, w.Reach.From = true, at
		case word == "back":
			w.Reach.Away, w.Reach.Back = false, at
		case word == "reached":
			w.Reach.Reached = at
		default:
			return fmt.Errorf("expected away, back or reached, got %q", word)
		}
	}
	return nil
}

func setNow(w *World, value string) (err error) {
	w.Now, err = moment(value)
	return err
}

// moment is a time, given as the duration since the creation of the machine.
func moment(value string) (time.Time, error) {
	d, err := time.ParseDuration(value)
	return born.Add(d), err
}

// machineWords are states in which machines are found again and again.
var machineWords = map[string]func(*World){
	"without our finalizer": func(w *World) { w.Machine.Finalizers = nil },
	"asked for":             askedFor, // the cloud may have been asked for its VM
	"created":               created,  // its VM was written down; Pending
	"joined":                joined,   // created, and Running
}

func askedFor(w *World) {
	w.Machine.Annotations = map[string]string{v1alpha1.AnnotationCreateSent: "true"}
}

func setMachine(w *World, value string) error {
	if word, known := machineWords[value]; known {
		word(w)
		return nil
	}
	return merge(w.Machine, value)
}

// merge puts the fields of a piece of YAML into an object. Maps are merged, lists are replaced.
func merge(into any, value string) error {
	if err := yaml.UnmarshalStrict([]byte(value), into); err != nil {
		return fmt.Errorf("expected a word that is known, or YAML, got %q: %w", value, err)
	}
	return nil
}

func setDeleted(w *World, value string) error {
	at, err := moment(cmp.Or(value, "0s"))
	w.Machine.DeletionTimestamp = &metav1.Time{Time: at}
	return err
}

// since cuts "… since 5s" off a value; without one it is since the creation.
func since(value string) (rest string, at time.Time, err error) {
	rest, age, found := strings.Cut(value, " since ")
	if !found {
		return value, born, nil
	}
	at, err = moment(age)
	return rest, at, err
}

func setPhaseFact(w *World, value string) error {
	name, at, err := since(value)
	if name == "none" {
		name = ""
	}
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(name)
	w.Machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(at)
	return err
}

func setLast(w *World, value string) error {
	text, at, err := since(value)
	words := append(strings.Fields(text), "", "")
	if len(words) < 4 || len(words) > 5 {
		return fmt.Errorf("expected type, state and perhaps a code, got %q", value)
	}
	w.Machine.Status.LastOperation = v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationType(words[0]), State: v1alpha1.MachineState(words[1]), ErrorCode: words[2],
		Description: "as before", LastUpdateTime: metav1.NewTime(at),
	}
	return err
}

func setClass(w *World, value string) error {
	switch value {
	case "none":
		w.Class = ClassFact{}
	case "not held":
		w.Class.HasFinalizers = false
	case "being deleted":
		w.Class.Class.DeletionTimestamp = &metav1.Time{Time: born}
	case "without a driver":
		w.Class.ProviderError = errors.New(`unknown provider "absent"`)
	case "not checked for fields that are ignored":
		w.Class.Fields.Read = false
	default:
		if fields, isList := strings.CutPrefix(value, "ignored fields "); isList {
			w.Class.Fields.Unknown = strings.Split(fields, ",")
			return nil
		}
		if fields, isList := strings.CutPrefix(value, "refused fields "); isList {
			w.Class.Fields.Unknown, w.Class.Fields.Refused = strings.Split(fields, ","), true
			return nil
		}
		return merge(w.Class.Class, value)
	}
	return nil
}

func setConfig(w *World, value string) error {
	w.Config.Read = true
	if value == "none" {
		w.Config.Problem = "no MachineConfigPool refers to it"
		return nil
	}
	var size int
	if _, err := fmt.Sscanf(value, "%d bytes", &size); err != nil {
		return err
	}
	w.Config.Values = map[string]string{
		v1alpha1.PlaceholderMachineConfig: strings.Repeat("x", size), v1alpha1.PlaceholderMachineConfigName: "rendered-p-1",
	}
	return nil
}

func setSecret(w *World, value string) error {
	switch value {
	case "not read":
		w.Secret = SecretFact{}
	case "missing":
		w.Secret = SecretFact{Read: true, Missing: "s"}
	case "foreign":
		w.Secret = SecretFact{Read: true, Missing: "other/s", Foreign: true}
	case "empty":
		w.Secret = SecretFact{Read: true}
	case "as large as a VM takes":
		w.Secret.UserData = userDataOf(driver.MaxUserData)
	case "too large for a VM":
		w.Secret.UserData = userDataOf(driver.MaxUserData + 1)
	default:
		w.Secret.UserData = []byte(value)
	}
	return nil
}

// userDataOf is user data of a size, once its placeholders are filled in.
func userDataOf(size int) []byte {
	const given, filled = "<<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>", "abcdef.0123456789abcdef m"
	return []byte(given + strings.Repeat("x", size-len(filled)))
}

func setVM(w *World, value string) error {
	value, isAdopting := strings.CutSuffix(value, ", with those without UID")
	value, isLeft := strings.CutSuffix(value, ", another one left")
	defer func() { w.VM.Left, w.VM.Adopting = isLeft, isAdopting }()
	states := map[string]VMState{
		"absent": VMAbsent, "uninitialized": VMUninitialized, "present": VMPresent, "ending": VMEnding, "hidden": VMHidden, "gone": VMAbsent,
	}
	state, details, _ := strings.Cut(value, " ")
	found, known := states[state]
	if !known {
		return fmt.Errorf("expected a state of a VM, got %q", value)
	}
	vm(found)(w)
	w.VM.Gone = state == "gone"
	if found == VMHidden {
		w.VM.VM = driver.VM{ProviderID: w.Machine.Spec.ProviderID, NodeName: NodeName(w.Machine)}
	}
	if details == "" {
		return nil
	}
	if since, asked, isEnding := strings.Cut(details, ", asked "); isEnding {
		var err1, err2 error
		w.VM.EndingSince, err1 = moment(strings.TrimPrefix(since, "since "))
		w.VM.AskedAt, err2 = moment(asked)
		return errors.Join(err1, err2)
	}
	return merge(&w.VM, details)
}

func setInvalid(w *World, value string) error {
	w.VM.Invalid = value
	return nil
}

func setNote(w *World, value string) error {
	w.VM.LastKnownState = value
	return nil
}

// nodeWords change the Node that is there.
var nodeWords = map[string]func(*World, *corev1.Node){
	"ready":     func(*World, *corev1.Node) {},
	"not ready": func(_ *World, n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
	"not claimed": func(w *World, n *corev1.Node) { // it has joined a moment ago, and the cloud has shown whose VM it is
		n.Finalizers, n.Annotations, n.Labels, w.Proven = nil, nil, map[string]string{}, "cloud:///i-1"
	},
	"not proven":           func(_ *World, n *corev1.Node) { n.Finalizers, n.Annotations, n.Labels = nil, nil, nil },
	"tied by MCM":          func(_ *World, n *corev1.Node) { n.Annotations = nil },
	"bound to another":     func(_ *World, n *corev1.Node) { n.Annotations[v1alpha1.AnnotationMachine] = "other/m/v" },
	"bound to one before":  func(_ *World, n *corev1.Node) { n.Annotations[v1alpha1.AnnotationMachine] = "n/m/before" },
	"written in this pass": func(w *World, _ *corev1.Node) { w.Node.Written = true },
	"in slot 8":            func(_ *World, n *corev1.Node) { n.Labels[v1alpha1.LabelSlot] = "8" },
	"of another VM":        func(_ *World, n *corev1.Node) { n.Spec.ProviderID = "cloud:///i-2" },
	"of no VM":             func(_ *World, n *corev1.Node) { n.Spec.ProviderID = "" },
	"of another machine": func(_ *World, n *corev1.Node) {
		n.Annotations, n.Labels[v1alpha1.LabelMachineName] = nil, "other"
	},
	"awaits components": func(_ *World, n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady}}
	},
	"being deleted": func(w *World, n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: w.Now} },
	"marked": func(_ *World, n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue})
	},
	"candidate":         func(_ *World, n *corev1.Node) { n.Labels[v1alpha1.LabelCandidateForUpdate] = "true" },
	"selected":          func(_ *World, n *corev1.Node) { n.Labels[v1alpha1.LabelSelectedForUpdate] = "true" },
	"updated":           func(_ *World, n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful },
	"not to be updated": func(_ *World, n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultFailed },
	"cordoned":          func(_ *World, n *corev1.Node) { n.Spec.Unschedulable = true },
	"silent":            func(_ *World, n *corev1.Node) { n.Status.Conditions = nil },
	"read live":         func(w *World, _ *corev1.Node) { w.Node.Live = true },
	"without a kubelet": func(_ *World, n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: "DiskPressure", Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: corev1.ConditionUnknown},
		}
	},
	"under disk pressure": func(_ *World, n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DiskPressure", Status: corev1.ConditionTrue})
	},
}

func setNode(w *World, value string) error {
	switch value {
	case "named":
		w.Node = NodeFact{State: NodeNamed}
		return nil
	case "absent":
		w.Node = NodeFact{State: NodeAbsent}
		return nil
	case "absent, and another one of the VM":
		w.Node = NodeFact{State: NodeAbsent, Elsewhere: "ip-1"}
		return nil
	}
	node()(w)
	for word := range strings.SplitSeq(value, ", ") {
		change, known := nodeWords[word]
		if stage, isStage := strings.CutPrefix(word, "in stage "); isStage {
			setStage(w, stage)
			continue
		}
		if !known {
			return fmt.Errorf("expected named, absent, or words for a Node, got %q", word)
		}
		change(w, w.Node.Node)
	}
	return nil
}

func setOtherClaims(w *World, value string) error {
	number, of, _ := strings.Cut(value, " for the ")
	claims := map[string]OtherClaims{"none": {Read: true}, "some": {Read: true, Found: true}}
	found, known := claims[number]
	if !known || of != "Node" && of != "VM" {
		return fmt.Errorf("expected none or some, for the Node or for the VM, got %q", value)
	}
	if of == "Node" {
		w.NodeClaims = found
	} else {
		w.VMClaims = found
	}
	return nil
}

func setDisruption(w *World, value string) error {
	disruptions := map[string]DisruptionFact{"allowed": DisruptionAllowed, "unneeded": DisruptionUnneeded}
	found, known := disruptions[value]
	if !known {
		return fmt.Errorf("expected allowed or unneeded, got %q", value)
	}
	w.Disruption = found
	return nil
}

func setToken(w *World, value string) error {
	states := map[string]TokenFact{"present": TokenPresent, "absent": TokenAbsent}
	found, known := states[value]
	if !known {
		return fmt.Errorf("expected present or absent, got %q", value)
	}
	w.Token = found
	return nil
}

func setFailure(w *World, value string) error {
	words := strings.Fields(value)
	if len(words) != 2 && (len(words) != 4 || words[2] != "retry-after") {
		return fmt.Errorf("expected operation and code, and perhaps retry-after and a duration, got %q", value)
	}
	op, code := driver.Op(words[0]), words[1]
	known, ok := driver.ParseCode(code)
	if !ok || !slices.Contains([]driver.Op{driver.OpCreate, driver.OpInitialize, driver.OpDelete, driver.OpStatus}, op) {
		return fmt.Errorf("expected an operation and a code of drivers, got %q", value)
	}
	w.Failure = &Failure{Code: known, Op: op, Message: "what the cloud says"}
	if len(words) == 4 {
		after, err := time.ParseDuration(words[3])
		w.Failure.RetryAfter = after
		return err
	}
	return nil
}

func setEvidence(w *World, value string) (err error) {
	if value == "may be asked for" {
		w.Evidence.MayAsk = true
		return nil
	}
	w.Evidence.Text, err = strconv.Unquote(value)
	return err
}

func setPassError(w *World, value string) error {
	code, ok := driver.ParseCode(value)
	if !ok {
		return fmt.Errorf("expected a code of drivers, got %q", value)
	}
	w.PassError = &PassError{Code: code, Message: "what the API server says"}
	return nil
}

func setBackoff(w *World, value string) error {
	var at, step, codes, known string
	for part := range strings.SplitSeq(value, ", ") {
		word, text, _ := strings.Cut(part, " ")
		switch word {
		case "until":
			at = text
		case "step":
			step = text
		case "after":
			codes = text
		case "reported":
			known = text
		default:
			return fmt.Errorf("expected until, step, after or reported, got %q", part)
		}
	}
	until, err1 := moment(at)
	wait, err2 := time.ParseDuration(cmp.Or(step, "0s"))
	b := backoff{At: until, Inputs: inputs(*w), Codes: strings.Fields(codes), Reported: strings.Fields(known)}
	b.Step.Duration = wait
	b.write(w.Machine)
	return errors.Join(err1, err2)
}

func setInputs(w *World, value string) error {
	if value != "changed" {
		return fmt.Errorf("expected changed, got %q", value)
	}
	w.Secret.Versions += " and later"
	return nil
}

// setStage says how far the Node is with its update in place, since an hour after the machine was
// created.
func setStage(w *World, stage string) {
	w.Node.Node.Status.Conditions = append(w.Node.Node.Status.Conditions, corev1.NodeCondition{
		Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: stage, Message: "As before.",
		LastTransitionTime: metav1.NewTime(born.Add(time.Hour)),
	})
}

func setSet(w *World, value string) error {
	if value != "old" && value != "new" {
		return fmt.Errorf("expected old or new, got %q", value)
	}
	w.Rollout = &nodesync.Rollout{IsOld: value == "old"}
	return nil
}

func setUpdateDrain(w *World, value string) (err error) {
	w.UpdateDrain, err = report(value)
	return err
}

func setDrain(w *World, value string) (err error) {
	w.Drain, err = report(value)
	return err
}

// report is a report of a drain, in words.
func report(value string) (drain.Report, error) {
	reports := map[string]drain.Report{
		"going on": {State: drain.Draining, Wake: time.Minute},
		"stuck":    {State: drain.Draining, Wake: time.Minute, IsStuck: true},
		"drained":  {State: drain.Drained},
		"given up": {State: drain.GivenUp},
	}
	state, text, isReported := strings.Cut(value, " \"")
	report, known := reports[state]
	if !known {
		return drain.Report{}, fmt.Errorf("expected going on, stuck, drained or given up, got %q", value)
	}
	report.Text, report.Ending = strings.TrimSuffix(text, "\""), isReported && report.State.Ended()
	return report, nil
}
