package rollout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// The tables in testdata are worked out by hand: what is given, an arrow, and for each value its
// name, the arithmetic, and what that comes to. Each test compares the arithmetic with what it is
// said to come to, and the values with what the code says.

// row is one line of a table.
type row struct {
	*testing.T

	words []string // that are given
	want  []value
	gone  string // of the history
}

type value struct {
	name string
	n    int32
}

// eachRow calls test for each line of a table.
func eachRow(t *testing.T, table string, test func(r *row)) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + table)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		t.Run(fmt.Sprintf("line %d", i+1), func(t *testing.T) {
			configured, terms, ok := strings.Cut(line, "=>")
			if !ok {
				t.Fatalf("expected an arrow in %q", line)
			}
			r := &row{T: t, words: strings.Fields(configured)}
			for term := range strings.SplitSeq(terms, ";") {
				r.read(strings.TrimSpace(term))
			}
			test(r)
		})
	}
}

// read reads "name arithmetic = value" and checks the arithmetic. Without a value it is the result.
func (r *row) read(term string) {
	name, rest, _ := strings.Cut(term, " ")
	if name == "gone" {
		r.gone = rest
		return
	}
	arithmetic, result, reported := strings.Cut(rest, "=")
	got := compute(r.T, strings.TrimSpace(arithmetic))
	if reported && fmt.Sprint(got) != strings.TrimSpace(result) {
		r.Errorf("%s: %s comes to %v, not to%s", name, arithmetic, got, result)
	}
	r.want = append(r.want, value{name, int32(got)})
}

// compute works out arithmetic with min, max, round, floor and ceil.
func compute(t *testing.T, arithmetic string) float64 {
	t.Helper()
	parsed, err := parser.ParseExpr(arithmetic)
	if err != nil {
		t.Fatalf("%q: %v", arithmetic, err)
	}
	var value func(e ast.Expr) float64
	value = func(e ast.Expr) float64 {
		switch e := e.(type) {
		case *ast.BasicLit:
			n, err := strconv.ParseFloat(e.Value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		case *ast.ParenExpr:
			return value(e.X)
		case *ast.UnaryExpr:
			return -value(e.X)
		case *ast.BinaryExpr:
			a, b := value(e.X), value(e.Y)
			return map[token.Token]float64{token.ADD: a + b, token.SUB: a - b, token.MUL: a * b, token.QUO: a / b}[e.Op]
		case *ast.CallExpr:
			first := value(e.Args[0])
			name, _ := e.Fun.(*ast.Ident)
			switch fmt.Sprint(name) {
			case "min":
				return min(first, value(e.Args[1]))
			case "max":
				return max(first, value(e.Args[1]))
			case "round":
				return math.Round(first)
			case "floor":
				return math.Floor(first)
			case "ceil":
				return math.Ceil(first)
			}
		}
		t.Fatalf("%q: this is not understood", arithmetic)
		return 0
	}
	return value(parsed)
}

// text takes the word after a name from what is given; "" when it is not there.
func (r *row) text(name string) string {
	for i := 0; i+1 < len(r.words); i++ {
		if r.words[i] == name {
			word := r.words[i+1]
			r.words = slices.Delete(r.words, i, i+2)
			return word
		}
	}
	return ""
}

func (r *row) number(name string) int32 {
	r.Helper()
	n, err := strconv.ParseInt(r.text(name), 10, 32)
	if err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	return int32(n)
}

// tallies reads what is left of what is given: names of sets, with size/running/preserved/updating.
func (r *row) tallies() (names []string, all []*tally) {
	r.Helper()
	for i := 0; i < len(r.words); i += 2 {
		if r.words[i] == "none" {
			names, all = append(names, ""), append(all, nil)
			i--
			continue
		}
		var n [4]int32
		for k, text := range strings.Split(r.words[i+1], "/") {
			v, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				r.Fatal(err)
			}
			n[k] = int32(v)
		}
		set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: r.words[i], UID: types.UID(r.words[i])}}
		names, all = append(names,
			r.words[i]), append(all, &tally{set: set, size: n[0], exist: n[0], running: n[1], preserved: n[2], updating: n[3]})
	}
	return names, all
}

// check compares what the code says of a value with what the table says, if it says anything.
func (r *row) check(name string, got int32) {
	r.Helper()
	reported := false
	for _, v := range r.want {
		if v.name == name {
			reported = true
			if v.n != got {
				r.Errorf("%s is %d, want %d", name, got, v.n)
			}
		}
	}
	if !reported {
		r.Errorf("%s is %d, and the table does not say what it should be", name, got)
	}
}

func TestTableOfLimits(t *testing.T) {
	eachRow(t, "limits.txt", func(r *row) {
		d := deployment(r.number("replicas"))
		surge, unavailable := intstr.Parse(r.text("surge")), intstr.Parse(r.text("unavailable"))
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxUnavailable: &unavailable, MaxSurge: &surge},
			},
		}
		if who := r.text("in-place"); who != "" {
			d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
				Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
				InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
					UpdateConfiguration: d.Spec.Strategy.RollingUpdate.UpdateConfiguration, OrchestrationType: v1alpha1.OrchestrationType(who),
				},
			}
		}
		l := limitsOf(d)
		r.check("surge", l.surge)
		r.check("unavailable", l.unavailable)
	})
}

func TestTableOfRollingUp(t *testing.T) {
	eachRow(t, "rolling-up.txt", func(r *row) {
		l := limits{replicas: r.number("replicas"), surge: r.number("surge")}
		r.check("size", rollUp(l, r.number("total"), r.number("size")))
	})
}

func TestTableOfRollingDown(t *testing.T) {
	eachRow(t, "rolling-down.txt", func(r *row) {
		least := r.number("least")
		names, all := r.tallies()
		rollDown(least, all[0], all[1:])
		for i, old := range all[1:] {
			r.check(names[i+1], old.size)
		}
		if twice := sizesOf(all); twice != "" {
			rollDown(least, all[0], all[1:])
			if again := sizesOf(all); again != twice {
				r.Errorf("decided again on the same machines: %s, and first %s", again, twice)
			}
		}
	})
}

func sizesOf(all []*tally) (text string) {
	for _, t := range all {
		text += fmt.Sprint(" ", t.size)
	}
	return text
}

func TestTableOfProportions(t *testing.T) {
	eachRow(t, "proportional.txt", func(r *row) {
		l := limits{replicas: r.number("replicas"), surge: r.number("surge")}
		sized, before := r.text("sized"), int32(0)
		if sized == "" {
			before = r.number("before")
		}
		names, all := r.tallies()
		var active []*tally // the oldest first
		for _, t := range append(slices.Clone(all[1:]), all[0]) {
			if t != nil {
				metav1.SetMetaDataAnnotation(&t.set.ObjectMeta, v1alpha1.AnnotationMaxReplicas, sized)
				active = append(active, t)
			}
		}
		spread(l, all[0], active, before)
		sum := int32(0)
		for i, t := range all {
			if t != nil {
				r.check(names[i], t.size)
				sum += t.size
			}
		}
		r.check("allowed", sum)
	})
}

func TestTableOfHistory(t *testing.T) {
	eachRow(t, "history.txt", func(r *row) {
		limit := r.number("limit")
		for i := 1; i < len(r.words); i += 2 {
			size, left, _ := strings.Cut(r.words[i], "+")
			r.words[i] = size
			if left != "" {
				r.words[i] = size + "/0/" + left
			}
		}
		_, old := r.tallies()
		for _, t := range old {
			t.exist, t.preserved = t.size+t.preserved, 0 // what is left of it
		}
		gone := "none"
		for i, set := range beyond(limit, old) {
			if i == 0 {
				gone = ""
			}
			gone = strings.TrimSpace(gone + " " + set.Name)
		}
		if gone != r.gone {
			r.Errorf("gone are %s, want %s", gone, r.gone)
		}
	})
}
