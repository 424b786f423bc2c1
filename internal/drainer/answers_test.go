package drainer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// Each answer to a request that removes something is known: success and 404 are accepted, and all
// others are refusals with a reason, which are tried again soon.
func TestAttemptClassifiesEveryStatus(t *testing.T) {
	pods := corev1.Resource("pods")
	type answer struct {
		name     string
		err      error
		accepted bool
	}
	answers := []answer{
		{"success", nil, true},
		{"no connection", errors.New("connection refused"), false},
		{"without a text", errors.New(""), false},
		{"wrapped", fmt.Errorf("take a disruption: %w", apierrors.NewConflict(pods, "web", errors.New("newer"))), false},
	}
	for code := http.StatusMultipleChoices; code < 600; code++ {
		isAccepted := code == http.StatusNotFound
		answers = append(answers,
			answer{fmt.Sprint(code), apierrors.NewGenericServerResponse(code, "create", pods, "web", "no", 0, false), isAccepted},
			answer{
				fmt.Sprint(code, " with retry after"), apierrors.NewGenericServerResponse(code, "create", pods, "web", "no", 60, false), isAccepted,
			},
			answer{fmt.Sprint(code, " without a text"), &apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code)}}, isAccepted})
	}
	for _, a := range answers {
		for _, how := range []drain.How{drain.Evict, drain.Take, drain.Delete} {
			got := attempt(drain.Attempt{}, now, how, a.err)
			if got.Accepted != a.accepted || got.Forced != (how == drain.Delete) {
				t.Errorf("%s, %s: %+v", how, a.name, got)
			}
			wait, longest := got.NotBefore.Sub(now), 20*time.Second
			if strings.HasSuffix(a.name, "after") {
				longest = time.Minute
			}
			if !a.accepted && (got.Why == "" || wait < 2*time.Second || wait > longest) {
				t.Errorf("%s, %s: tried again after %s because of %q", how, a.name, wait, got.Why)
			}
		}
	}
}

// What is accepted again and again is known to have stayed.
func TestAttemptThatIsAcceptedTwiceHasStayed(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("pods"), "web")
	once := attempt(drain.Attempt{}, now, drain.Evict, gone)
	if twice := attempt(once, now, drain.Evict, gone); once.IsRepeated || !twice.IsRepeated || twice.Why != gone.Error() {
		t.Errorf("%+v, %+v", once, twice)
	}
	if again := attempt(attempt(once, now, drain.Evict, errors.New("no")), now, drain.Evict, nil); again.IsRepeated {
		t.Errorf("after a refusal: %+v", again)
	}
}
