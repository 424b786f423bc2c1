package machineset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// checks plays the check of a class.
type checks struct {
	problem string
	err     error
	takes   time.Duration
	times   int
}

func (c *checks) of(context.Context, types.NamespacedName) (string, error) {
	c.times++
	problem, err := c.problem, c.err
	time.Sleep(c.takes)
	return problem, err
}

// valid returns reason and message of the condition Valid; "" if there is none.
func (b *bench) valid() string {
	if is := machinefacts.MachineSetCondition(&b.set().Status, v1alpha1.MachineSetValid); is != nil {
		return is.Reason + ": " + is.Message
	}
	return ""
}

func (b *bench) expectValid(when, want string) {
	b.Helper()
	if got := b.valid(); got != want {
		b.Errorf("%s: Valid is %q, want %q", when, got, want)
	}
}

// changeClass writes the set's class.
func (b *bench) changeClass(to string) {
	b.Helper()
	b.server.AddJSON("machineclasses", fmt.Sprintf(
		`{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{"namespace":"n","name":"c","annotations":{"a":%q}}}`, to,
	))
	b.pass(time.Second)
}

const noVM = v1alpha1.ReasonInvalidClass + ": No machine gets a VM: there is no Secret"

func TestClassWithoutVMsIsReportedBeforeAMachineIsCreatedUntilItDoes(t *testing.T) {
	class := &checks{problem: "there is no Secret"}
	onBench(t, func(b *bench) {
		b.create(0)
		b.pass(time.Second)
		b.expectValid("without replicas", noVM)
		class.problem = ""
		b.pass(31 * time.Second)
		b.expectValid("after a correction", "")
		class.problem = "there is no Secret"
		b.pass(11 * time.Minute)
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Hour)
		b.expectValid("with a machine without a VM", noVM)
		if n := len(b.machines()); n != 1 {
			b.Errorf("%d machines, want 1, as with Machine Controller Manager", n)
		}
		class.err, class.times = errors.New("the API server is away"), 0
		b.pass(time.Hour)
		b.expectValid("while the class cannot be checked", noVM)
		if class.times > 20 {
			b.Errorf("a class for which a machine waits was checked %d times", class.times)
		}
		class.problem, class.err = "", nil
		b.pass(11 * time.Minute)
		b.expectValid("after the correction", "")
		class.times = 0
		b.pass(time.Hour)
		if class.times > 6 {
			b.Errorf("a class that works was checked %d times in an hour", class.times)
		}
		b.patchMachine(b.machines()[0].Name, `{"spec":{"providerID":"a"}}`)
		b.pass(time.Minute)
		class.problem, class.times = "it does not work any more", 0
		b.pass(time.Hour)
		b.expectValid("with a VM", "")
		if class.times > 0 {
			b.Errorf("the class of a VM was checked %d times", class.times)
		}
	}, func(cfg *Config) { cfg.ClassProblem = class.of })
}

// The machines of a set without a controller wait for their target cluster, each on its own. That
// of another set is reported by its MachineDeployment.
func TestSetWithoutControllerReportsThatItsTargetClusterIsNotAvailable(t *testing.T) {
	const waits = v1alpha1.ReasonTargetUnavailable + ": Machines wait for the target cluster: no Secret"
	onBench(t, func(b *bench) {
		b.target.problem = "no Secret"
		b.create(1)
		b.expectValid("without the Secret", waits)
		if n := len(b.machines()); n != 1 {
			b.Errorf("%d machines, want 1", n)
		}
		b.target.problem, b.target.pending = "", true
		b.controller.TargetChanged("n")
		b.pass(time.Second)
		b.expectValid("while it is being connected to", waits)
		b.target.pending = false
		b.pass(time.Minute)
		b.expectValid("after the correction, of which nothing is reported", "")
		b.target.problem = "no Secret"
		b.controller.TargetChanged("n")
		b.pass(time.Second)
		b.expectValid("without the Secret again", waits)
		b.patch(
			`{"metadata":{"ownerReferences":[{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineDeployment","name":"d","uid":"d","controller":true}]}}`,
		)
		b.pass(time.Minute)
		b.expectValid("with a controller", "")
	})
}

// A driver that hangs stops the machines of its provider only, also where one tenant has many sets
// of it, and delays no check of another tenant.
func TestChecksThatHangDelayNoMachines(t *testing.T) {
	hangs := func(ctx context.Context, class types.NamespacedName) (string, error) {
		if class.Namespace == "n" {
			return "there is no Secret", nil
		}
		ctx, end := context.WithTimeout(ctx, 5*time.Second)
		defer end()
		<-ctx.Done()
		return "", ctx.Err()
	}
	onBench(t, func(b *bench) {
		for i := range 2 * checksAtOnce {
			b.add(0, func(set *v1alpha1.MachineSet) {
				set.Namespace, set.Name, set.Spec.Template.Spec.Class.Name = "other", fmt.Sprint(i), fmt.Sprint("c", i)
			})
		}
		b.pass(time.Second)
		b.add(1)
		b.pass(time.Second)
		if n := len(b.machines()); n != 1 {
			b.Errorf("%d machines after a second, want 1", n)
		}
		b.expectValid("after a second", noVM)
	}, func(cfg *Config) { cfg.ClassProblem, cfg.Workers = hangs, 2*checksAtOnce })
}

// All namespaces together have a limit of checks, too. The end of this process's ownership is no
// result for others.
func TestClassChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClassChecks(clock.RealClock{}, func(ctx context.Context, _ types.NamespacedName) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		ctx, end := context.WithCancel(t.Context())
		for i := range 2 * checksAtOnce {
			go c.of(ctx, types.NamespacedName{Namespace: fmt.Sprint(i), Name: "c"})
		}
		synctest.Wait()
		if c.total != checksAtOnce {
			t.Errorf("%d checks run, want %d", c.total, checksAtOnce)
		}
		end()
		synctest.Wait()
		if c.total != 0 || len(c.running)+len(c.results) > 0 {
			t.Errorf("%d checks run after the end, in %d namespaces, with %d results", c.total, len(c.running), len(c.results))
		}
	})
}

// A class is checked once, and not once for each of its sets.
func TestClassOfManySetsIsCheckedOnce(t *testing.T) {
	class := &checks{problem: "there is no Secret", takes: time.Second}
	onBench(t, func(b *bench) {
		for i := range 20 {
			b.add(0, func(set *v1alpha1.MachineSet) { set.Name = fmt.Sprint(i) })
		}
		expect := func(when string, invalid, checks int) {
			b.Helper()
			n := 0
			for _, set := range apiserver.ReadAll[v1alpha1.MachineSet](b.server, "machinesets") {
				if machinefacts.MachineSetCondition(&set.Status, v1alpha1.MachineSetValid) != nil {
					n++
				}
			}
			if n != invalid || class.times > checks {
				b.Errorf("%s: %d sets are invalid after %d checks, want %d after at most %d", when, n, class.times, invalid, checks)
			}
			class.times = 0
		}
		b.pass(10 * time.Second)
		expect("at first", 20, 1)
		b.pass(5*time.Minute + 10*time.Second)
		expect("later", 20, 10)
		class.problem = ""
		b.changeClass("1")
		b.pass(10 * time.Second)
		expect("after a change", 0, 1)
		b.pass(time.Hour)
		expect("while it works", 0, 6)
	}, func(cfg *Config) { cfg.ClassProblem, cfg.Workers = class.of, 20 })
}

func TestClassIsCheckedAgainWhenItChanges(t *testing.T) {
	class := &checks{problem: "there is no Secret"}
	onBench(t, func(b *bench) {
		b.create(0)
		b.pass(time.Second)
		b.expectValid("at first", noVM)
		class.err = errors.New("the API server is away")
		b.changeClass("1")
		b.expectValid("changed, and it cannot be checked", noVM)
		class.problem, class.err = "", nil
		b.changeClass("2")
		b.expectValid("with another class", "")
		class.problem, class.takes = "there is no Secret", 3*time.Second
		b.pass(10 * time.Minute) // a check has begun
		class.problem = ""
		b.changeClass("3")
		b.pass(6 * time.Second)
		b.expectValid("changed while it was checked", "")
	}, func(cfg *Config) { cfg.ClassProblem = class.of })
}

func TestCheckThatFailsHoldsNoMachines(t *testing.T) {
	class := &checks{err: errors.New("the API server is away")}
	onBench(t, func(b *bench) {
		b.create(2)
		b.pass(time.Second)
		b.expectValid("the class cannot be checked", "")
		if n := len(b.machines()); n != 2 {
			b.Errorf("%d machines, want 2", n)
		}
		if w := b.controller.observe(b.set()); !w.ClassCheckLast {
			b.Error("the next check, which may hang, precedes the creation of machines")
		}
	}, func(cfg *Config) { cfg.ClassProblem = class.of })
}

func TestCheckThatFailsKeepsWhatAnEarlierProcessReported(t *testing.T) {
	class := &checks{err: errors.New("the API server is away")}
	onBench(t, func(b *bench) {
		b.create(0, func(set *v1alpha1.MachineSet) {
			set.Status.Conditions = []v1alpha1.MachineSetCondition{
				{
					Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonInvalidClass,
					Message: "No machine gets a VM: there is no Secret",
				},
			}
		})
		b.expectValid("the class cannot be checked", noVM)
		class.err = nil
		b.pass(31 * time.Second)
		b.expectValid("the class is good", "")
	}, func(cfg *Config) { cfg.ClassProblem = class.of })
}

func TestClassOfASetThatARolloutReplacesIsNotChecked(t *testing.T) {
	class := &checks{problem: "it was deleted"}
	onBench(t, func(b *bench) {
		of := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", UID: "d"}}
		apiserver.Add(b.server, of)
		owner := *metav1.NewControllerRef(of, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))
		inRevision := func(name, revision string) func(*v1alpha1.MachineSet) {
			return func(set *v1alpha1.MachineSet) {
				set.Name, set.OwnerReferences = name, []metav1.OwnerReference{owner}
				set.Annotations = map[string]string{v1alpha1.AnnotationRevision: revision}
			}
		}
		b.create(0, inRevision("newest", "2"))
		if class.times == 0 {
			b.Error("the class of the newest set was not checked")
		}
		class.times = 0
		b.create(0, inRevision("set", "1"))
		b.pass(29 * time.Second)
		b.expectValid("an old set", "")
	}, func(cfg *Config) { cfg.ClassProblem = class.of })
}

// A check writes on the class which fields the driver does not know. That is no change of the class
// that leads to another check, for each answer of a driver.
func TestOwnWriteOfAClassCheckLeadsToNoCheck(t *testing.T) {
	var b *bench
	checks := 0
	onBench(t, func(is *bench) {
		b = is
		b.create(0)
		b.pass(time.Minute)
		if checks > 10 {
			t.Errorf("%d checks in a minute, want one in 30 s", checks)
		}
	}, func(cfg *Config) {
		cfg.ClassProblem = func(context.Context, types.NamespacedName) (string, error) {
			checks++
			time.Sleep(20 * time.Millisecond) // in which a call would be sent
			b.server.AddJSON("machineclasses",
				fmt.Sprintf(`{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{"namespace":"n","name":"c",
				"annotations":{%q:"a%d"}}}`, v1alpha1.AnnotationUnknownFields, checks))
			return "its driver refuses fields", nil
		}
	})
}
