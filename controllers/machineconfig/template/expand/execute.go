package expand

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	texttemplate "text/template"
	"text/template/parse"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

const (
	// maxSteps bounds the rounds of loops and the calls of templates, and of functions.
	maxSteps = 10_000
	// maxProduced bounds the bytes that functions return in all.
	maxProduced = 8 << 20
	// maxText is how many bytes of the text of an error a message has.
	maxText = 300
)

// stepName is the name of the function that counts rounds. No template can call it: it is no
// allowed name.
const stepName = "step"

// builtins are the functions of text/template that exist.
var builtins = []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index"}

// errTooMuch is why rendering is ended.
var errTooMuch = fmt.Errorf("it takes more than %d rounds and calls, or its functions return more than %d bytes", maxSteps, maxProduced)

// budget counts what a template may still use.
type budget struct{ steps, bytes int }

// step takes one step.
func (b *budget) step() (string, error) {
	if b.steps--; b.steps < 0 {
		return "", errTooMuch
	}
	return "", nil
}

// produced takes a step with the result of a function.
func (b *budget) produced(text string) (string, error) {
	if b.bytes -= len(text); b.bytes < 0 {
		return "", errTooMuch
	}
	_, err := b.step()
	return text, err
}

// limited is where a result is written.
type limited struct {
	strings.Builder
	over bool
}

// Write appends, up to the size that a result may have. Errors: it is larger.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxResult {
		l.over = true
		return 0, fmt.Errorf("it results in more than %d bytes", maxResult)
	}
	return l.Builder.Write(p)
}

// execute renders a text. Errors name the place and what is missing or too large; they contain no
// values.
func execute(text string, values map[string]any) (string, error) {
	b := &budget{steps: maxSteps, bytes: maxProduced}
	t, err := texttemplate.New("").Option("missingkey=error").Funcs(b.functions()).Parse(text)
	if err != nil {
		return "", errors.New("it cannot be parsed: " + explain(err))
	}
	for _, one := range t.Templates() {
		if one.Tree == nil {
			continue
		}
		if err := guard(one.Root); err != nil {
			return "", err
		}
	}
	var out limited
	if err := t.Execute(&out, values); err != nil {
		switch {
		case out.over:
			return "", fmt.Errorf("it results in more than %d bytes", maxResult)
		case errors.Is(err, errTooMuch):
			return "", errTooMuch
		}
		return "", errors.New("it cannot be rendered: " + explain(err))
	}
	return out.String(), nil
}

// explain returns the text of an error of text/template, which names the place, and of values their
// types only.
func explain(err error) string {
	text := strings.TrimPrefix(err.Error(), "template: ")
	return bounded.Text(strings.TrimPrefix(text, ":"), maxText)
}

// guard has each list of nodes that can be executed again, the body of a loop or of a template,
// take a step first, and refuses functions that do not exist here.
func guard(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		if err := guardNode(node); err != nil {
			return err
		}
	}
	list.Nodes = slices.Insert(list.Nodes, 0, parse.Node(stepNode()))
	return nil
}

func guardNode(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ActionNode:
		return guardPipe(n.Pipe)
	case *parse.TemplateNode:
		return guardPipe(n.Pipe)
	case *parse.IfNode:
		return guardBranch(&n.BranchNode)
	case *parse.RangeNode:
		return guardBranch(&n.BranchNode)
	case *parse.WithNode:
		return guardBranch(&n.BranchNode)
	}
	return nil
}

func guardBranch(n *parse.BranchNode) error {
	return errors.Join(guardPipe(n.Pipe), guard(n.List), guard(n.ElseList))
}

func guardPipe(pipe *parse.PipeNode) error {
	if pipe == nil {
		return nil
	}
	for _, command := range pipe.Cmds {
		for _, argument := range command.Args {
			if err := guardArgument(argument); err != nil {
				return err
			}
		}
	}
	return nil
}

func guardArgument(node parse.Node) error {
	switch n := node.(type) {
	case *parse.IdentifierNode:
		if !slices.Contains(builtins, n.Ident) && !slices.Contains(functionNames, n.Ident) {
			return fmt.Errorf("function %.40q does not exist. There are: %s", n.Ident, strings.Join(slices.Concat(functionNames, builtins), ", "))
		}
	case *parse.PipeNode:
		return guardPipe(n)
	case *parse.ChainNode:
		return guardArgument(n.Node)
	}
	return nil
}

// stepNode returns the node {{step}}.
func stepNode() *parse.ActionNode {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe,
		Cmds:     []*parse.CommandNode{{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier(stepName)}}},
	}}
}
