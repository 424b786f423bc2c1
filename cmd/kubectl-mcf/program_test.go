package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// now is the time of the recorded objects.
var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// stepping is a clock that steps when it is waited for.
type stepping struct{ *clocktesting.FakeClock }

func (c stepping) NewTicker(d time.Duration) clock.Ticker { return steppingTicker{c, d} }

type steppingTicker struct {
	clock  stepping
	period time.Duration
}

func (t steppingTicker) C() <-chan time.Time { return t.clock.After(t.period) }
func (t steppingTicker) Stop()               {}

func (c stepping) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	at := make(chan time.Time, 1)
	at <- c.Now()
	return at
}

// cluster is a control cluster and target cluster with recorded objects.
func cluster(t *testing.T) *apiserver.Server {
	t.Helper()
	return clusterOf(t, "snapshot.yaml")
}

// clusterOf is one with the objects of a file.
func clusterOf(t *testing.T, file string) *apiserver.Server {
	t.Helper()
	s := apiserver.Recording()
	content, err := os.ReadFile("../../internal/view/text/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var document map[string]any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, _ := document["kind"].(string)
		plural := strings.ToLower(kind) + "s"
		if kind == "MachineClass" {
			plural = "machineclasses"
		}
		if _, err := s.Load(plural, document); err != nil {
			t.Fatal(err)
		}
	}
}

// outcome has the output of a command and its exit code.
type outcome struct {
	out, err string
	code     int
}

// call runs a command on a cluster.
func call(t *testing.T, s *apiserver.Server, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	p := &program{
		streams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
		clock:   stepping{clocktesting.NewFakeClock(now)}, env: func(string) string { return "" },
		connect: func(p *program) (control, target *rest.Config, err error) {
			if p.noTarget {
				return s.Config(), nil, nil
			}
			return s.Config(), s.Config(), nil
		},
	}
	code := execute(t.Context(), newCommand(p), append([]string{"--namespace=prod", "--fleet-namespace=fleet"}, args...))
	return outcome{out.String(), errOut.String(), code}
}

// transcript returns a command and its outcome as a terminal shows them.
func transcript(t *testing.T, s *apiserver.Server, args ...string) string {
	t.Helper()
	result := call(t, s, args...)
	text := fmt.Sprintf("$ kubectl mcf %s\n%s%s", strings.Join(args, " "), result.out, result.err)
	if result.code != 0 {
		text += fmt.Sprintf("exit code %d\n", result.code)
	}
	return text + "\n"
}
