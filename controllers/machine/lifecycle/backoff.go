package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Waits between attempts at the cloud: the first, doubled each time, up to the longest.
const (
	firstRetry   = 5 * time.Second
	longestRetry = 3 * time.Minute
)

// backoff records consecutive failures of the cloud. It is stored on
// the machine, so that a replica that takes the machine over neither asks too soon nor waits twice.
type backoff struct {
	// At is when the cloud may be asked again.
	At time.Time `json:"at,omitzero"`
	// Step is the wait that led to At, unless the cloud has requested a longer one. The next one is
	// twice as long. It is 0 after a lack of quota or capacity, which has its own wait.
	Step metav1.Duration `json:"step,omitzero"`
	// Inputs are the versions of class and secrets that the cloud has failed with.
	Inputs string `json:"inputs,omitempty"`
	// Codes of the failures so far, each once and the last failure's last: each is reported to the
	// user once.
	Codes []string `json:"codes,omitempty"`
	// Reported are the codes of other failures that were reported to the user and that the last
	// operation does not have any more.
	Reported []string `json:"reported,omitempty"`
}

// readBackoff returns the back-off that is stored on the machine; the zero value when there is
// none, or none that is valid. Twice the longest wait is valid: the replica that wrote it may have
// had another clock.
func readBackoff(w World) backoff {
	var b backoff
	if json.Unmarshal([]byte(w.Machine.Annotations[v1alpha1.AnnotationBackoff]), &b) != nil || b.At.After(w.Now.Add(2*longestWait(w.Limits))) {
		return backoff{}
	}
	return b
}

// RetryAt returns when the cloud may be called again for a machine after a failure; zero if that is
// not recorded on it.
func RetryAt(m *v1alpha1.Machine) time.Time {
	var b backoff
	if json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationBackoff]), &b) != nil {
		return time.Time{}
	}
	return b.At
}

// longestWait returns the upper bound of a wait, by the clock that it was begun on.
func longestWait(limits Limits) time.Duration {
	return max(driver.MaxRetryAfter, limits.ResourceExhaustedRetry)
}

// failedAgain is the back-off after one more failure: 5 s, doubled each time up to 3 min; after a
// lack of quota or capacity the fleet's setting; and longer if the cloud requests it.
func (b backoff) failedAgain(w World, code driver.Code) backoff {
	next := backoff{Inputs: inputs(w), Codes: b.Codes, Reported: b.Reported}
	if b.Inputs == next.Inputs {
		next.Step = b.Step
	}
	var asked time.Duration
	if w.Failure != nil {
		asked = w.Failure.RetryAfter
	}
	var wait time.Duration
	next.Step.Duration, wait = NextWait(next.Step.Duration, code, asked, w.Limits)
	next.At = w.Now.Add(wait).UTC()
	others := slices.DeleteFunc(slices.Clone(b.Codes), func(c string) bool { return c == code.String() })
	next.Codes = slices.Concat(others, []string{code.String()})
	return next
}

// NextWait returns how long the cloud is not asked after a failure. before is the step that
// resulted from the failure before it, 0 for the first one, and asked the wait that the cloud
// requests; step is to be passed after the next failure.
func NextWait(before time.Duration, code driver.Code, asked time.Duration, limits Limits) (step, wait time.Duration) {
	if code == driver.ResourceExhausted {
		return 0, max(limits.ResourceExhaustedRetry, time.Second, asked)
	}
	step = min(max(2*before, firstRetry), longestRetry)
	return step, max(step, asked)
}

// knows reports whether a code was reported to the user.
func (b backoff) knows(code string) bool {
	return slices.Contains(b.Codes, code) || slices.Contains(b.Reported, code)
}

// write puts the back-off on the machine.
func (b backoff) write(m *v1alpha1.Machine) {
	text, err := json.Marshal(b)
	if err != nil { // times and strings always encode
		return
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationBackoff, string(text))
}

// endBackoff removes the back-off: the last request to the cloud has succeeded, or the next one is
// of another kind.
func endBackoff(m *v1alpha1.Machine) { delete(m.Annotations, v1alpha1.AnnotationBackoff) }

// inputs are the versions of what the cloud is asked with. When they change, waiting on is
// pointless.
func inputs(w World) string {
	if class := w.Class.Class; class != nil {
		return fmt.Sprintf("%s/%d,%s", class.UID, class.Generation, w.Secret.Versions+class.Annotations[v1alpha1.AnnotationAllowUnknownFields])
	}
	return w.Secret.Versions
}

// waiting returns the back-off, and reports whether the cloud must not be asked yet.
func waiting(w World) (b backoff, wait bool) {
	b = readBackoff(w)
	return b, b.At.After(w.Now) && b.Inputs == inputs(w)
}

// lastFailure returns the failure after which the machine waits. The wait is written first, and
// then the failure: isLost reports whether the second write has failed, so that the cloud's own
// message is lost and was not reported.
func (b backoff) lastFailure(m *v1alpha1.Machine, op v1alpha1.MachineOperationType) (code driver.Code, message string, isLost bool) {
	last := m.Status.LastOperation
	if len(b.Codes) == 0 { // another client has written it
		code, _ = driver.ParseCode(last.ErrorCode)
		return code, last.Description, false
	}
	code, _ = driver.ParseCode(b.Codes[len(b.Codes)-1])
	if failedWith(m, op, code) {
		return code, last.Description, false
	}
	return code, cloudMessage(code, "the message of the cloud was lost before it was recorded"), true
}

// isWaitedAfter reports whether the machine records a failure of the cloud, after which it waits.
func isWaitedAfter(w World) bool {
	b, op := readBackoff(w), v1alpha1.MachineOperationCreate
	if w.Machine.DeletionTimestamp != nil {
		op = v1alpha1.MachineOperationDelete
	}
	if len(b.Codes) == 0 || !b.At.After(w.Now) {
		return false
	}
	_, _, isLost := b.lastFailure(w.Machine, op)
	return !isLost
}

// noteFailure records that an operation has failed, and reports whether that code was reported
// before. Codes that the last operation does not have any more are kept in the back-off, so that
// each code is reported once, regardless of their order.
func noteFailure(w World, m *v1alpha1.Machine, op v1alpha1.MachineOperationType, code driver.Code, message string) (b backoff, known bool) {
	last := m.Status.LastOperation
	w.Machine = m
	b = readBackoff(w)
	known = b.knows(code.String()) || failedWith(m, op, code)
	hasFailed := last.Type == op && last.State == v1alpha1.MachineStateFailed && last.ErrorCode != ""
	if hasFailed && last.ErrorCode != code.String() && !b.knows(last.ErrorCode) {
		b.Reported = append(slices.Clone(b.Reported), last.ErrorCode)
		b.write(m)
	}
	setOperation(w, m, v1alpha1.LastOperation{Type: op, State: v1alpha1.MachineStateFailed, ErrorCode: code.String(), Description: message})
	return b, known
}

// cloudFrame begins the message for a failure of the cloud. The code and the cloud's own text
// follow.
const cloudFrame = "Cloud provider message - machine codes error: code = ["

// cloudMessage returns the message for a failure of the cloud. The cluster-autoscaler parses it.
func cloudMessage(code driver.Code, message string) string {
	return fmt.Sprintf("%s%s] message = [%s]", cloudFrame, code, message)
}

// CloudText returns a text that may end with the message for a failure of the cloud with that of
// the cloud alone, for people: the code is next to it, where it matters.
func CloudText(text string) string {
	before, framed, isFramed := strings.Cut(text, cloudFrame)
	_, message, hasMessage := strings.Cut(framed, "] message = [")
	message, isWhole := strings.CutSuffix(message, "]")
	if !isFramed || !hasMessage || !isWhole {
		return text
	}
	return before + message
}

// sharedByReplacement reports whether a new machine in this one's place would fail in the same way:
// a lack of quota or capacity, and what lasts until a user changes class, secret or cloud account.
// No machine fails for such a cause.
func sharedByReplacement(code driver.Code) bool {
	switch code {
	case driver.InvalidArgument, driver.NotFound, driver.PermissionDenied, driver.Unauthenticated,
		driver.FailedPrecondition, driver.Unimplemented, driver.ResourceExhausted:
		return true
	case driver.OK, driver.Canceled, driver.Unknown, driver.DeadlineExceeded, driver.AlreadyExists,
		driver.Aborted, driver.OutOfRange, driver.Internal, driver.Unavailable, driver.DataLoss, driver.Uninitialized:
		return false
	default:
		return false
	}
}
