package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

const keysPage = "docs/reference/labels.md"

var (
	// facts are the last paragraph of the comment of a constant that is a key.
	facts = regexp.MustCompile(`^On: (.+?)\. By: (.+?)\.(?: Value: (.+?)\.)? See: (\S+)\.$`)
	// conditionTypes is the comment above constants that are types of conditions.
	conditionTypes = regexp.MustCompile(`^Condition types of (?:a|the) (\w+)`)
	// ourKeys are labels, annotations, finalizers and taints of the project's domains.
	ourKeys    = regexp.MustCompile(`\b(?:[a-z]+\.)?machine\.sapcloud\.io/[a-z][A-Za-z-]*[A-Za-z]|\bnode\.gardener\.cloud/[a-z][a-z-]*[a-z]`)
	exportedID = regexp.MustCompile(`\b[A-Z]\w+\b`)
)

// key is a row of the page.
type key struct{ name, kind, value, on, by, format, page, meaning string }

// TestKeysPage compares docs/reference/labels.md with the constants, and fails for one that does
// not have its facts.
func TestKeysPage(t *testing.T) {
	folders := []string{"apis/machine", "apis/fleet", "driver/aws", "driver/azure"}
	files := slices.DeleteFunc(load(t), func(f goFile) bool {
		return f.isTest() || f.isGenerated() || !slices.ContainsFunc(folders, f.inside)
	})
	constants := constantsOf(files)
	slices.SortStableFunc(files, func(a, b goFile) int {
		return cmp.Compare(slices.IndexFunc(folders, a.inside), slices.IndexFunc(folders, b.inside))
	})
	var keys, conditions []key
	for _, f := range files {
		for _, declaration := range f.syntax.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl: // of an annotation whose prefix is a setting
				if k, ok := prefixed(d, constants); ok {
					keys = append(keys, withFacts(t, f, d, d.Doc, k))
				}
			case *ast.GenDecl:
				of := conditionTypes.FindStringSubmatch(d.Doc.Text())
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if d.Tok != token.CONST || !ok || len(v.Values) != 1 {
						continue
					}
					k := key{name: v.Names[0].Name, kind: keyKind(v.Names[0].Name)}
					k.value = constants[f.folder()+"."+k.name]
					doc := v.Doc
					if doc == nil {
						doc = d.Doc
					}
					switch _, isAlias := v.Values[0].(*ast.SelectorExpr); {
					case of != nil:
						k.on, k.meaning = of[1], meaning(k.name, doc.Text())
						conditions = append(conditions, k)
					case k.kind != "" && !isAlias:
						keys = append(keys, withFacts(t, f, v, doc, k))
					}
				}
			}
		}
	}
	golden.Compare(t, filepath.Join(root, keysPage), writeKeys(keys, conditions, constants))
}

// TestKeysAreOnThePage: each key that the code, the chart or the documentation names is that of a
// constant.
func TestKeysAreOnThePage(t *testing.T) {
	page := string(read(t, keysPage))
	walk(t, func(name string) {
		if strings.HasSuffix(name, "_test.go") || !slices.ContainsFunc([]string{".go", ".md", ".yaml", ".tpl", ".txt", ".sh"},
			func(end string) bool { return strings.HasSuffix(name, end) }) {
			return
		}
		for _, found := range ourKeys.FindAllString(string(read(t, name)), -1) {
			if !strings.Contains(page, "`"+found+"`") && !slices.Contains(notOurs, found) && !objectNames.MatchString(found) {
				t.Errorf("%s names %s: expected a constant in apis/ whose comment ends with On, By, Value and See (make generate), or correct the name",
					name, found)
			}
		}
	})
}

// objectNames are those of objects, as kubectl prints them.
var objectNames = regexp.MustCompile(`^machine(set|deployment|class)?\.machine\.sapcloud\.io/`)

// notOurs are names in the documentation that neither the fleet nor its drivers use.
var notOurs = []string{
	"node.machine.sapcloud.io/machine-join-duration", // of Machine Controller Manager; the fleet does not write it
	"fleet.machine.sapcloud.io/never",                // an example's scheduling gate, which is never removed
	"machine.sapcloud.io/v", "fleet.machine.sapcloud.io/v",
}

// keyKind returns the kind of key that a constant is; "" if it is none.
func keyKind(constant string) string {
	switch {
	case strings.HasPrefix(constant, "LeaseOf"): // values of LabelLease
		return ""
	case strings.Contains(constant, "Finalizer"):
		return "Finalizer"
	}
	for _, kind := range []string{"Label", "Annotation", "Taint", "Lease", "Tag"} {
		if strings.HasPrefix(constant, kind) {
			return kind
		}
	}
	return ""
}

func withFacts(t *testing.T, f goFile, at ast.Node, doc *ast.CommentGroup, k key) key {
	t.Helper()
	paragraphs := strings.Split(strings.TrimSpace(doc.Text()), "\n\n")
	found := facts.FindStringSubmatch(strings.Join(strings.Fields(paragraphs[len(paragraphs)-1]), " "))
	if found == nil {
		t.Errorf("%s: %s: expected a comment whose last paragraph is \"On: <objects>. By: <writers>. Value: <format>. See: <page in docs/>.\"",
			f.at(at), k.name)
		return k
	}
	k.on, k.by, k.format, k.page = found[1], found[2], found[3], found[4]
	k.meaning = meaning(k.name, strings.Join(paragraphs[:len(paragraphs)-1], " "))
	return k
}

// meaning returns a comment without the name that it begins with.
func meaning(name, comment string) string {
	text := strings.TrimPrefix(strings.Join(strings.Fields(comment), " "), name+" ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// prefixed returns the annotation of a method that appends a name to a prefix.
func prefixed(f *ast.FuncDecl, constants map[string]string) (key, bool) {
	if f.Recv == nil || f.Type.Params.NumFields() > 0 {
		return key{}, false
	}
	receiver, ok := f.Recv.List[0].Type.(*ast.Ident)
	if !ok || receiver.Name != "AnnotationPrefix" {
		return key{}, false
	}
	k := key{name: f.Name.Name, kind: "Annotation", value: constants["apis/fleet/v1alpha1.DaemonPrefix"]}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if text, is := n.(*ast.BasicLit); is {
			suffix, _ := literal(text, nil)
			k.value += suffix
		}
		return true
	})
	return k, true
}

// constantsOf returns the constants that are strings, by folder and name.
func constantsOf(files []goFile) map[string]string {
	values := map[string]string{}
	expressions := map[string]ast.Expr{}
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, name := range v.Names {
					expressions[f.folder()+"."+name.Name] = v.Values[i]
				}
			}
			return true
		})
	}
	var value func(folder string, x ast.Expr) string
	value = func(folder string, x ast.Expr) string {
		switch x := x.(type) {
		case *ast.BasicLit:
			text, _ := literal(x, nil)
			return text
		case *ast.Ident:
			return value(folder, expressions[folder+"."+x.Name])
		case *ast.SelectorExpr: // the other packages name constants of this one only
			return value("apis/machine/v1alpha1", expressions["apis/machine/v1alpha1."+x.Sel.Name])
		case *ast.BinaryExpr:
			return value(folder, x.X) + value(folder, x.Y)
		}
		return ""
	}
	for name, x := range expressions {
		folder, _, _ := strings.Cut(name, ".")
		values[name] = value(folder, x)
	}
	return values
}

func writeKeys(keys, conditions []key, constants map[string]string) string {
	var out strings.Builder
	out.WriteString(`<!-- Generated by make generate from the constants in apis/ and of drivers. Change their comments. -->
# Labels, annotations, finalizers, taints, conditions and Leases

What the fleet reads and writes beyond the fields of objects. Names below ` + "`fleet.machine.sapcloud.io/`" + ` are the fleet's own; the
others are those of Machine Controller Manager, which writes them where the fleet does. What "user" writes is an interface; the rest is
the fleet's to change. Who may write the fleet's own is in [access](../operations/access.md#who-may-write-the-fleets-notes). The prefix
of the daemon's annotations is a setting (` + "`--machine-config-annotation-prefix`" + `).
`)
	short := map[string]string{}
	for name, value := range constants {
		_, constant, _ := strings.Cut(name, ".")
		if value != "" {
			short[constant] = "`" + value + "`"
		}
	}
	for _, k := range keys {
		short[k.name] = "`" + k.value + "`"
	}
	for _, k := range conditions {
		short[k.name] = "`" + k.value + "` of a " + k.on
	}
	named := func(text string) string {
		return cell(exportedID.ReplaceAllStringFunc(text, func(word string) string { return cmp.Or(short[word], word) }))
	}
	onLeases := func(k key) bool { return strings.HasPrefix(k.on, "Lease") }
	of := func(kind string) func(k key) bool {
		return func(k key) bool { return k.kind == kind && !onLeases(k) }
	}
	for _, section := range []struct {
		title string
		has   func(k key) bool
	}{
		{"Labels", of("Label")},
		{"Annotations", of("Annotation")},
		{"Finalizers", of("Finalizer")},
		{"Taints", of("Taint")},
		{"Leases", of("Lease")},
		{"Labels and annotations of Leases", onLeases},
		{"Tags at clouds", of("Tag")},
	} {
		fmt.Fprintf(&out, "\n## %s\n\n", section.title)
		if section.title == "Leases" {
			out.WriteString("The fleet itself has `<fleet>-leader`, `<fleet>-session-<replica>`, `<fleet>-report-<replica>` and " +
				"`<fleet>-slot-<number>`, and these:\n\n")
		}
		out.WriteString("| name | on | written by | value | meaning |\n|---|---|---|---|---|\n")
		for _, k := range keys {
			if section.has(k) {
				name := k.value
				if strings.HasPrefix(name, "-") {
					name = "<fleet>" + name
				}
				fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s ([more](../%s)) |\n", name, k.on, k.by, k.format, named(k.meaning), k.page)
			}
		}
	}
	out.WriteString("\n## Conditions\n\nThe fleet writes all of them. Their reasons are in [the types](https://pkg.go.dev/" + module +
		"/apis/machine/v1alpha1).\n\n| type | on | meaning |\n|---|---|---|\n")
	for _, k := range conditions {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", k.value, k.on, named(k.meaning))
	}
	return out.String()
}
