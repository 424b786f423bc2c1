package driver

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// echo is a driver whose cloud echoes a text.
type echo struct {
	Driver

	text   string
	panics bool
}

func (e echo) CreateMachine(context.Context, CreateMachineRequest) (CreateMachineResponse, error) {
	if e.panics {
		panic(e.text)
	}
	return CreateMachineResponse{LastKnownState: e.text, VM: VM{State: e.text}}, &Error{
		Code: ResourceExhausted, Op: OpCreate, RetryAfter: 7, Pending: true, Throttled: true, Err: fmt.Errorf("cloud: %w", errors.New(e.text)),
	}
}

func (e echo) InitializeMachine(context.Context, InitializeMachineRequest) (InitializeMachineResponse, error) {
	return InitializeMachineResponse{VM: VM{State: e.text}}, nil
}

func (e echo) GetMachineStatus(context.Context, GetMachineStatusRequest) (GetMachineStatusResponse, error) {
	return GetMachineStatusResponse{VM: VM{State: e.text}}, nil
}

func (e echo) DeleteMachine(context.Context, DeleteMachineRequest) (DeleteMachineResponse, error) {
	return DeleteMachineResponse{}, errors.New(e.text) // not typed
}

const (
	plantedPassword = "h4nnah!" // shorter than a run
	plantedKey      = "AKIA/9f8e7d6c5b4a39281706+f5e4d3c2b1"
	plantedToken    = "abcdef.0123456789abcdef"
	plantedUserData = "#!/bin/sh\njoin --token \"" + plantedToken +
		"\" --name workers-a-7c9f8-xyz12\nexport PASSWORD='correct horse battery staple'\n"
)

func creation() CreateMachineRequest {
	return CreateMachineRequest{
		Target: Target{
			Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "workers-a-7c9f8-xyz12"}},
			Secret: map[string][]byte{
				"key": []byte(plantedKey + "\n"), "password": []byte(plantedPassword), "endpoint": []byte("https://cloud.example.org:8443/v1"),
				"region": []byte("eu-1"),
			},
		},
		UserData: []byte(plantedUserData),
	}
}

func TestRedactedRemovesWhatACloudEchoes(t *testing.T) {
	body := `{"userData":"` + base64.StdEncoding.EncodeToString([]byte(plantedUserData)) + `"}`
	for name, c := range map[string]struct{ echoed, want string }{
		"nothing":          {"no capacity for type small in zone eu-1", "no capacity for type small in zone eu-1"},
		"whole value":      {"key " + plantedKey + " is not valid", "key [redacted] is not valid"},
		"short value":      {"password " + plantedPassword + " is not valid", "password [redacted] is not valid"},
		"token":            {"token=" + plantedToken + ": expired", "token=[redacted]: expired"},
		"secret of token":  {"token of 0123456789abcdef", "token of [redacted]"},
		"part of the data": {"line 3: PASSWORD='correct horse battery sta", "line 3:[redacted]"},
		"base64":           {"sent " + base64.StdEncoding.EncodeToString([]byte(plantedKey)), "sent [redacted]"},
		"base64 in base64": {"sent " + base64.StdEncoding.EncodeToString([]byte(body)), ""},
		"basic auth":       {"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+plantedKey)), "Basic dXNlcjpB[redacted]="},
		"URL":              {"GET /?key=" + url.QueryEscape(plantedKey) + " failed", "GET /?key=[redacted] failed"},
		"hexadecimal":      {hex.EncodeToString([]byte(plantedKey)), "[redacted]"},
		"JSON":             {fmt.Sprintf("%q", plantedUserData), ""},
		"the machine":      {"VM workers-a-7c9f8-xyz12 exists", "VM workers-a-7c9f8-xyz12 exists"},
		"the endpoint": {
			"Post \"https://cloud.example.org:8443/v1/vms\": refused", "Post \"https://cloud.example.org:8443/v1/vms\": refused",
		},
		"a short region": {"region eu-1 is full", "region eu-1 is full"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := Redacted(echo{text: c.echoed}).CreateMachine(t.Context(), creation())
			if CodeOf(err) != ResourceExhausted || RetryAfterOf(err) != 7 || !IsPending(err) || !IsThrottled(err) {
				t.Errorf("the error has lost its code or its wait: %v", err)
			}
			initialized, _ := Redacted(echo{text: c.echoed}).InitializeMachine(t.Context(), InitializeMachineRequest{Target: creation().Target})
			status, _ := Redacted(echo{text: c.echoed}).GetMachineStatus(t.Context(), GetMachineStatusRequest{Target: creation().Target})
			_, untyped := Redacted(echo{text: c.echoed}).DeleteMachine(t.Context(), DeleteMachineRequest{Target: creation().Target})
			for _, text := range []string{
				MessageOf(err), fmt.Sprintf("%v %+v", err, err), errors.Join(err).Error(), resp.LastKnownState, resp.State,
			} {
				wantNoSecret(t, text, plantedKey, plantedPassword, plantedToken, "correct horse")
			}
			for _, text := range []string{untyped.Error(), initialized.State, status.State} { // of requests without user data
				wantNoSecret(t, text, plantedKey, plantedPassword)
			}
			if want := "throttled, to be repeated after 1s: cloud: " + c.want; c.want != "" && MessageOf(err) != want {
				t.Errorf("message %q, want %q", MessageOf(err), want)
			}
		})
	}
}

func wantNoSecret(t *testing.T, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		for _, form := range encodings(secret) {
			if strings.Contains(text, form) {
				t.Errorf("%q has %q", text, form)
			}
		}
	}
}

func TestRedactedUnchangedErrorKeepsItsCauses(t *testing.T) {
	cause := errors.New("no capacity")
	for _, err := range []error{cause, &Error{Code: Unavailable, Err: cause}, &Error{Code: Unavailable}} {
		if got := (redactor{secret: creation().Secret}).redactError(err); got != err { //nolint:errorlint // the very same
			t.Errorf("got %#v, want the same as %#v", got, err)
		}
	}
}

func TestRedactedPanicHasNoSecret(t *testing.T) {
	defer func() {
		if got, want := recover(), "bad key [redacted]"; got != want {
			t.Errorf("panic with %v, want %v", got, want)
		}
	}()
	_, _ = Redacted(echo{text: "bad key " + plantedKey, panics: true}).CreateMachine(t.Context(), creation())
}

// A text is cut before it is searched: its length is the cloud's choice.
func TestRedactedBoundsTheText(t *testing.T) {
	r := redactor{secret: map[string][]byte{"key": []byte(plantedKey)}}
	if got := r.redact(strings.Repeat("x", 100<<20) + plantedKey); len(got) > mostRedacted+len("…") {
		t.Errorf("%d bytes are left", len(got))
	}
	if got := r.redact(strings.Repeat("é", mostRedacted/2-5) + plantedKey); strings.Contains(got, plantedKey[:leastRun]) {
		t.Errorf("a secret at the cut is left: %q", got[mostRedacted-30:])
	}
}

func BenchmarkRedactedError(b *testing.B) {
	r := redactor{userData: []byte(strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz\n", MaxUserData/37))}
	err := &Error{Code: Internal, Err: errors.New(strings.Repeat("a message of a cloud; ", 50))}
	for b.Loop() {
		_ = r.redactError(err)
	}
}
