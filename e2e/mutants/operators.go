package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// weaker are constants that stand for a condition, and the weaker one that replaces them.
var weaker = map[string]string{
	"member.NeedFence":        "member.NeedNothing",
	"member.NeedLeadership":   "member.NeedNothing",
	"protocol.NeedFence":      "protocol.NeedNothing",
	"protocol.NeedLeadership": "protocol.NeedNothing",
	"create":                  "call",
}

// silent are calls without an effect on decisions: locking, logging, metrics and text.
var silent = []string{
	"Lock", "Unlock", "RLock", "RUnlock", "Info", "Error", "V", "End", "panic", "Eventf", "Inc", "Set", "Observe", "Fprintf", "Write", "Close",
}

// compared are the helpers of the generated package for comparisons.
var compared = map[token.Token]string{token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater", token.GEQ: "GreaterEqual"}

// boundaries are the operators by which comparisons are replaced.
var boundaries = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

// inBody finds the mutants of a function.
func (f *finder) inBody(function *ast.FuncDecl) {
	var results []*ast.FieldList // of the functions around a node
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			results = append(results, n.Type.Results)
			ast.Inspect(n.Body, visit)
			results = results[:len(results)-1]
			return false
		case *ast.IfStmt:
			f.condition("if", n.Cond)
			f.unconditional(n)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				f.cases(n.Body.List)
			}
		case *ast.BinaryExpr:
			f.binary(n)
		case *ast.ReturnStmt:
			f.returned(n, results[len(results)-1])
		case *ast.BlockStmt:
			f.statements(n.List)
		case *ast.CaseClause:
			f.statements(n.Body)
		case *ast.CommClause:
			f.statements(n.Body)
		case *ast.CallExpr:
			f.call(n)
		case *ast.CompositeLit:
			f.literal(n)
		}
		return true
	}
	results = append(results, function.Type.Results)
	ast.Inspect(function.Body, visit)
}

func isError(e ast.Expr) bool {
	binary, ok := e.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	name, ok := binary.X.(*ast.Ident)
	return ok && strings.HasPrefix(name.Name, "err")
}

// condition makes a condition false, so that its branch never runs.
func (f *finder) condition(of string, cond ast.Expr) {
	text := oneLine(f.text(cond))
	if isError(cond) {
		return // without the check of an error the following code has no valid value
	}
	f.add(of+"-never", fmt.Sprintf("%s %s: never", of, shortened(text, 90)), text, f.wrap(cond, "(!mutant_.On(#) && (", "))")...)
}

// unconditional makes a condition true, so that its branch always runs. A branch that leaves the
// function or the loop would disable it, and where the condition has several parts they are dropped
// one by one.
func (f *finder) unconditional(n *ast.IfStmt) {
	if len(n.Body.List) == 0 || isLogical(n.Cond) || isError(n.Cond) || isTime(f.text(n.Cond)) {
		return
	}
	switch last := n.Body.List[len(n.Body.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return
	case *ast.ExprStmt:
		if call, ok := last.X.(*ast.CallExpr); ok && isSilent(call) {
			return
		}
	}
	text := oneLine(f.text(n.Cond))
	f.add("always", fmt.Sprintf("if %s: always", shortened(text, 90)), text, f.wrap(n.Cond, "(mutant_.On(#) || (", "))")...)
}

func (f *finder) cases(clauses []ast.Stmt) {
	for _, clause := range clauses {
		clause, ok := clause.(*ast.CaseClause)
		if !ok {
			continue
		}
		for _, cond := range clause.List {
			f.condition("case", cond)
		}
	}
}

func isLogical(e ast.Expr) bool {
	binary, ok := e.(*ast.BinaryExpr)
	return ok && (binary.Op == token.LAND || binary.Op == token.LOR)
}

// binary drops an operand of && and ||, and moves the boundary of a comparison.
func (f *finder) binary(n *ast.BinaryExpr) {
	drop := func(operand ast.Expr) {
		if inner, ok := operand.(*ast.BinaryExpr); ok && inner.Op == n.Op {
			return // its operands are dropped one by one
		}
		text := oneLine(f.text(operand))
		if n.Op == token.LAND {
			f.add("and", fmt.Sprintf("drop condition %s of %s", shortened(text, 60), shortened(oneLine(f.text(n)), 70)), text,
				f.wrap(operand, "(mutant_.On(#) || (", "))")...)
			return
		}
		f.add("or", fmt.Sprintf("drop alternative %s of %s", shortened(text, 60), shortened(oneLine(f.text(n)), 70)), text,
			f.wrap(operand, "(!mutant_.On(#) && (", "))")...)
	}
	switch n.Op { //nolint:exhaustive // the others are no conditions
	case token.LAND, token.LOR:
		drop(n.X)
		drop(n.Y)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if isTime(f.text(n)) {
			return
		}
		edits := f.wrap(n, "mutant_."+compared[n.Op]+"(#, ", ")")
		edits = append(edits, edit{offset: f.offset(n.OpPos), length: len(n.Op.String()), text: ","})
		f.add("boundary", fmt.Sprintf("%s with %s", shortened(oneLine(f.text(n)), 90), boundaries[n.Op]), f.text(n), edits...)
	}
}

// isTime reports whether a comparison is one of instants or durations. One nanosecond more or less
// is no rule.
func isTime(text string) bool {
	return slices.ContainsFunc([]string{"Since(", "TakeOver", "Monotonic", "silence"}, func(of string) bool {
		return strings.Contains(text, of)
	})
}

// returned replaces the result of a function with one bool result by a constant.
func (f *finder) returned(n *ast.ReturnStmt, results *ast.FieldList) {
	if results == nil || len(results.List) != 1 || len(results.List[0].Names) > 1 || len(n.Results) != 1 {
		return
	}
	of, ok := results.List[0].Type.(*ast.Ident)
	if !ok || of.Name != "bool" {
		return
	}
	result := n.Results[0]
	text := oneLine(f.text(result))
	if isLogical(result) || text == "true" || text == "false" {
		return
	}
	f.add("true", "return true for "+shortened(text, 90), text, f.wrap(result, "(mutant_.On(#) || (", "))")...)
	f.add("false", "return false for "+shortened(text, 90), text, f.wrap(result, "(!mutant_.On(#) && (", "))")...)
}

// statements drops statements, or one of several values that a statement assigns.
func (f *finder) statements(list []ast.Stmt) {
	for _, statement := range list {
		text := oneLine(f.text(statement))
		remove := func(operator string) {
			f.add(operator, "drop "+shortened(text, 100), text, f.wrap(statement, "if !mutant_.On(#) { ", " }")...)
		}
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && !isSilent(call) {
				remove("call")
			}
		case *ast.DeferStmt:
			if !isSilent(s.Call) {
				remove("defer")
			}
		case *ast.IncDecStmt:
			remove("assign")
		case *ast.AssignStmt:
			f.assignment(s, remove)
		}
	}
}

func (f *finder) assignment(s *ast.AssignStmt, remove func(operator string)) {
	if s.Tok == token.DEFINE {
		return
	}
	if len(s.Lhs) == 1 {
		if name, ok := s.Lhs[0].(*ast.Ident); !ok || name.Name != "_" {
			remove("assign")
		}
		return
	}
	if len(s.Lhs) != len(s.Rhs) {
		return
	}
	for i, value := range s.Rhs {
		kept := oneLine(f.text(s.Lhs[i]))
		if kept != "_" {
			f.add("keep", fmt.Sprintf("leave %s as it is in %s", kept, shortened(oneLine(f.text(s)), 80)), kept+" in "+f.text(s),
				f.wrap(value, "mutant_.Keep(#, ", ", "+kept+")")...)
		}
	}
}

func isSilent(call *ast.CallExpr) bool {
	name := ""
	switch called := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = called.Sel.Name
		//nolint:errcheck // checked before
		if _, metrics := called.X.(*ast.SelectorExpr); metrics &&
			strings.HasSuffix(fmt.Sprint(called.X.(*ast.SelectorExpr).Sel.Name), "metrics") {
			return true
		}
	case *ast.Ident:
		name = called.Name
	}
	return slices.Contains(silent, name)
}

// call drops an operand of max and min, leaves out a wait, and weakens a condition that is passed.
func (f *finder) call(n *ast.CallExpr) {
	switch called := n.Fun.(type) {
	case *ast.Ident:
		if (called.Name == "max" || called.Name == "min") && len(n.Args) == 2 {
			for i, operand := range n.Args {
				whole := oneLine(f.text(n))
				f.add("operand", fmt.Sprintf("%s for %s", shortened(oneLine(f.text(operand)), 50), shortened(whole, 60)), fmt.Sprint(i, whole),
					f.wrap(n, fmt.Sprintf("mutant_.Operand(#, %d, ", i), ", "+f.text(n.Args[0])+", "+f.text(n.Args[1])+")")...)
			}
		}
	case *ast.SelectorExpr:
		if called.Sel.Name == "Add" && len(n.Args) == 1 {
			wait := n.Args[0]
			f.add("wait", fmt.Sprintf("leave out the time in %s", shortened(oneLine(f.text(n)), 80)), f.text(n),
				f.wrap(wait, "mutant_.Zero(#, ", ")")...)
		}
	}
	for _, argument := range n.Args {
		f.weaken(argument)
	}
}

func (f *finder) weaken(e ast.Expr) {
	text := f.text(e)
	if by := weaker[text]; by != "" {
		f.add("weaker", fmt.Sprintf("%s for %s", by, text), text, f.wrap(e, "mutant_.Keep(#, ", ", "+by+")")...)
	}
}

// literal leaves out fields of struct literals, and weakens conditions in them.
func (f *finder) literal(n *ast.CompositeLit) {
	if n.Type == nil {
		return
	}
	of := oneLine(f.text(n.Type))
	for _, element := range n.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		name, ok := pair.Key.(*ast.Ident)
		if !ok || strings.HasPrefix(of, "map[") {
			continue
		}
		if weaker[f.text(pair.Value)] != "" {
			f.weaken(pair.Value)
			continue
		}
		if rule := skipped[of+"."+name.Name]; rule {
			f.add("field", fmt.Sprintf("leave out %s in %s", oneLine(f.text(pair)), of), of+" "+f.text(pair),
				f.wrap(pair.Value, "mutant_.Zero(#, ", ")")...)
		}
	}
}

// skipped are fields that implement a rule: the literal is valid without them.
var skipped = map[string]bool{
	"Change.Ticket": true, "Deletion.Failed": true, "Deletion.UID": true, "question.releases": true, "question.acquired": true,
	"assignment.Slot.HomeUntil": true, "assignment.Slot.UnownedSince": true, "assignment.Slot.Moved": true, "assignment.Slot.Passed": true,
	"assignment.Replica.Leaving": true, "member.Request.Lease": false, "Disruption.Since": true, "load.coming": true, "load.allowed": true,
	"Exit.Empty": true, "attempt.sent": true, "note.genuine": true, "note.labelled": true,
}
